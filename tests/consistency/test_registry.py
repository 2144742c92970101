from bireme.consistency.registry import LEDGERS, new_ledger
from bireme.types.choices import Consistency


def test_every_model_that_can_be_chosen_has_a_ledger():
    assert set(LEDGERS) == set(Consistency)
    for consistency in Consistency:
        assert new_ledger(consistency) is not new_ledger(consistency)


def test_only_asynchronous_pushes_need_an_optimizer():
    assert not new_ledger(Consistency.SYNC).needs_updater
    assert new_ledger(Consistency.ASYNC).needs_updater
