from bireme.consistency.sync import SyncLedger


def test_a_round_waits_for_all_and_then_counts_for_all():
    ledger = SyncLedger()
    ledger.record(2)
    assert not ledger.ready(0b101)
    assert ledger.missing(0b101) == 0b001
    ledger.record(0)
    assert ledger.ready(0b101)
    ledger.advance()
    assert [ledger.expected(rank) for rank in range(3)] == [1, 1, 1]
    assert all(ledger.visible(rank, 1) for rank in range(3))


def test_a_round_without_any_contribution_is_not_ready_though_nobody_is_awaited():
    assert not SyncLedger().ready(0)


def test_before_anybody_pushed_all_are_missing():
    assert SyncLedger().missing(0b11) == 0b11
