from bireme.consistency.registry import LEDGERS, new_ledger
from bireme.types.choices import Consistency


def test_every_model_that_can_be_chosen_has_a_ledger():
    assert set(LEDGERS) == set(Consistency)
    for consistency in Consistency:
        assert new_ledger(consistency) is not new_ledger(consistency)


def test_a_bound_of_0_is_the_synchronous_model():
    assert type(new_ledger(Consistency.BOUNDED, 0)) is type(new_ledger(Consistency.SYNC))


def test_pushes_that_are_applied_one_by_one_need_an_optimizer():
    assert new_ledger(Consistency.BOUNDED, 1).needs_updater
    assert not new_ledger(Consistency.SYNC).needs_updater
    assert new_ledger(Consistency.ASYNC).needs_updater
