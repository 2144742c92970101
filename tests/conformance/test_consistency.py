"""What every consistency model must do, whatever it waits for."""

from random import Random

import pytest

from bireme.consistency.base import mask_of, ranks_in
from bireme.consistency.registry import LEDGERS, new_ledger

NUM_RANKS = 3


@pytest.fixture(params=LEDGERS, ids=str)
def ledger(request):
    return new_ledger(request.param)


def test_it_begins_with_nothing(ledger):
    assert ledger.version == 0
    for rank in range(NUM_RANKS):
        assert ledger.expected(rank) == ledger.answered(rank) == 0
        assert ledger.visible(rank, 0)
        assert not ledger.visible(rank, 1)
    assert not ledger.ready(mask_of(range(NUM_RANKS)))


def test_a_recorded_number_is_never_expected_again(ledger):
    ledger.record(1)
    assert ledger.expected(1) == 1
    assert ledger.expected(0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_pushes_keeps_the_rules(ledger, seed):
    random, awaited = Random(seed), mask_of(range(NUM_RANKS))
    taken = [0] * NUM_RANKS
    for _ in range(60):
        ready_ranks = [r for r in range(NUM_RANKS) if ledger.answered(r) == ledger.expected(r)]
        rank = random.choice(ready_ranks)
        before = ledger.version
        ledger.record(rank)
        taken[rank] += 1
        assert ledger.expected(rank) == taken[rank]
        if ledger.ready(awaited):
            ledger.advance()
            assert ledger.version == before + 1
            assert not ledger.ready(awaited)
            assert ledger.answered(rank) == taken[rank]
            assert ledger.visible(rank, taken[rank])
        else:
            assert ledger.version == before
            assert ranks_in(ledger.missing(awaited)), "it waits, but for nobody"
        assert ledger.answered(rank) <= ledger.expected(rank)
        assert not ledger.visible(rank, taken[rank] + 1)


def test_those_who_are_not_awaited_hold_nobody_up(ledger):
    ledger.record(0)
    ledger.record(2)
    assert ledger.ready(mask_of([0, 2]))
    assert ledger.missing(mask_of([0, 2])) == 0
