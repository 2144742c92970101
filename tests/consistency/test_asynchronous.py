from bireme.consistency.asynchronous import AsyncLedger


def test_each_rank_has_its_own_count():
    ledger = AsyncLedger()
    for _ in range(3):
        ledger.record(5)
        ledger.advance()
    assert (ledger.expected(5), ledger.answered(5), ledger.version) == (3, 3, 3)
    assert ledger.expected(0) == 0
    assert ledger.visible(5, 3)
    assert not ledger.visible(0, 1)


def test_nobody_waits_for_another():
    ledger = AsyncLedger()
    ledger.record(0)
    assert ledger.ready(0b111)
    assert ledger.missing(0b111) == 0
