"""What every consistency model must do, whatever it waits for."""

from random import Random

import pytest

from bireme.consistency.base import mask_of, ranks_in
from bireme.consistency.registry import LEDGERS, new_ledger
from bireme.types.choices import Consistency

NUM_RANKS = 3
EVERYONE = mask_of(range(NUM_RANKS))

MODELS = [(each, 0) for each in LEDGERS] + [(Consistency.BOUNDED, bound) for bound in (1, 2, 5)]


@pytest.fixture(params=MODELS, ids=lambda model: f"{model[0]}-{model[1]}")
def ledger(request):
    made = new_ledger(*request.param)
    made.follow(EVERYONE)
    return made


def test_it_begins_with_nothing(ledger):
    assert ledger.version == 0
    for rank in range(NUM_RANKS):
        assert ledger.expected(rank) == ledger.answered(rank) == 0
        assert ledger.visible(rank, 0)
        assert not ledger.visible(rank, 1)
    assert not ledger.ready(EVERYONE)


def test_a_recorded_number_is_never_expected_again(ledger):
    ledger.record(1)
    assert ledger.expected(1) == 1
    assert ledger.expected(0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_pushes_keeps_the_rules(ledger, seed):
    random = Random(seed)
    taken = [0] * NUM_RANKS
    for _ in range(60):
        ready_ranks = [r for r in range(NUM_RANKS) if ledger.answered(r) == ledger.expected(r)]
        rank = random.choice(ready_ranks)
        before, answered = ledger.version, [ledger.answered(r) for r in range(NUM_RANKS)]
        ledger.record(rank)
        taken[rank] += 1
        assert ledger.expected(rank) == taken[rank]
        if ledger.ready(EVERYONE):
            ledger.advance()
            assert ledger.version == before + 1
            assert not ledger.ready(EVERYONE)
        else:
            assert ledger.version == before
            assert ranks_in(ledger.missing(EVERYONE)), "it waits, but for nobody"
        if ledger.answered(rank) < taken[rank]:
            assert not ledger.visible(rank, taken[rank])
            missing = ranks_in(ledger.missing(EVERYONE))
            assert missing, "a push is not answered, but nobody is waited for"
            assert rank not in missing
        else:
            assert ledger.visible(rank, taken[rank])
        for each in range(NUM_RANKS):
            assert answered[each] <= ledger.answered(each) <= ledger.expected(each)
        assert not ledger.visible(rank, taken[rank] + 1)


def test_those_who_are_not_awaited_hold_nobody_up(ledger):
    present = mask_of([0, 2])
    ledger.follow(present)
    for _ in range(9):
        for rank in (0, 2):
            ledger.record(rank)
            if ledger.ready(present):
                ledger.advance()
        assert ledger.answered(0) == ledger.answered(2) == ledger.expected(0)
    assert not ledger.missing(present) & ~present


def test_a_rank_that_goes_lets_the_others_go_on(ledger):
    for _ in range(9):
        for rank in (0, 2):
            if ledger.answered(rank) == ledger.expected(rank):
                ledger.record(rank)
                if ledger.ready(EVERYONE):
                    ledger.advance()
    present = mask_of([0, 2])
    ledger.follow(present)
    if ledger.ready(present):
        ledger.advance()
    assert ledger.answered(0) == ledger.expected(0)
    assert not ledger.missing(present) & ~present
