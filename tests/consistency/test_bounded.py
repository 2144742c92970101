import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.consistency.base import mask_of
from bireme.consistency.bounded import BoundedLedger
from bireme.errors import ConfigError


def push(ledger, rank, times=1):
    for _ in range(times):
        ledger.record(rank)
        assert ledger.ready(0)
        ledger.advance()


def test_exactly_those_who_are_too_far_ahead_wait():
    ledger = BoundedLedger(2)
    ledger.follow(0b111)
    push(ledger, 0, 3)
    push(ledger, 1, 2)
    assert (ledger.answered(0), ledger.answered(1), ledger.answered(2)) == (2, 2, 0)
    assert ledger.missing(0b111) == 0b100
    push(ledger, 2)
    assert ledger.answered(0) == 3
    assert ledger.missing(0b111) == 0


def test_a_pull_waits_as_the_push_before_it_does():
    ledger = BoundedLedger(1)
    ledger.follow(0b11)
    push(ledger, 0, 2)
    assert ledger.visible(0, 1)
    assert not ledger.visible(0, 2)
    assert ledger.visible(1, 0)


def test_every_version_is_one_push():
    ledger = BoundedLedger(1)
    ledger.follow(0b11)
    push(ledger, 0, 2)
    push(ledger, 1)
    assert ledger.version == 3


def test_a_rank_that_left_does_not_count_and_one_that_comes_back_does():
    ledger = BoundedLedger(1)
    ledger.follow(0b111)
    push(ledger, 0, 2)
    push(ledger, 1, 1)
    assert ledger.answered(0) == 1
    ledger.follow(0b011)
    assert ledger.answered(0) == 2
    push(ledger, 0)
    assert ledger.answered(0) == 2
    ledger.follow(0b001)
    assert ledger.answered(0) == 3
    ledger.follow(0b111)
    assert ledger.answered(0) == 1
    ledger.follow(0)
    assert ledger.answered(0) == 3


@pytest.mark.parametrize("staleness", [0, -1])
def test_a_staleness_that_bounds_nothing_early(staleness):
    with pytest.raises(ConfigError, match="staleness >= 1"):
        BoundedLedger(staleness)


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=80))
def test_clocks_never_drift_further_apart_than_the_bound_and_one(staleness, order):
    ledger, clocks = BoundedLedger(staleness), [0] * 4
    ledger.follow(mask_of(range(4)))
    for rank in order:
        slow = clocks[rank] - min(clocks) > staleness
        assert (ledger.answered(rank) < clocks[rank]) is slow, "waits although it need not, or not"
        if slow:
            continue
        push(ledger, rank)
        clocks[rank] += 1
        assert max(clocks) - min(clocks) <= staleness + 1
