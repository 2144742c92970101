"""Every server gets its share, within one slot, the same way every time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.placement import Balancer
from bireme.placement.balance import SLOT_COST_BYTES

BANDWIDTHS = st.lists(st.floats(0.1, 100), min_size=1, max_size=9) | st.lists(
    st.sampled_from([1.0, 1.0, 2.5]), min_size=1, max_size=40
)
SIZES = st.lists(st.integers(0, 1 << 20), max_size=60)


@given(BANDWIDTHS, SIZES)
def test_no_server_is_further_than_one_slot_from_its_share(bandwidths, sizes):
    balancer = Balancer(bandwidths)
    placed = balancer.place(sizes)
    assert len(placed) == len(sizes)
    costs = [size + SLOT_COST_BYTES for size in sizes]
    by_hand = [0] * len(bandwidths)
    for rank, cost in zip(placed, costs, strict=True):
        by_hand[rank] += cost
    assert balancer.loads() == by_hand
    for load, share in zip(by_hand, balancer.shares(), strict=True):
        assert abs(load - share * sum(costs)) <= max(costs, default=0) + 1e-6


@given(BANDWIDTHS, SIZES, st.integers(0, 60))
def test_the_answer_depends_on_the_sequence_only(bandwidths, sizes, split):
    once, twice = Balancer(bandwidths), Balancer(bandwidths)
    assert once.place(sizes) == twice.place(sizes[:split]) + twice.place(sizes[split:])


@given(st.integers(1, 8), st.integers(1, 200))
def test_equal_slots_go_round_equal_servers(num_servers, num_slots):
    placed = Balancer([1.0] * num_servers).place([1000] * num_slots)
    assert placed == [slot % num_servers for slot in range(num_slots)]


def test_shares_follow_bandwidth():
    balancer = Balancer([25.0, 100.0])
    balancer.place([1 << 20] * 1000)
    slow, fast = balancer.loads()
    assert fast / slow == pytest.approx(4, rel=0.01)


def test_empty_values_are_spread_too():
    placed = Balancer([1.0, 1.0, 1.0]).place([0] * 9)
    assert sorted(placed) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("bandwidths", [[1.0] * 100, [float(1 + i % 5) for i in range(100)]])
def test_a_hundred_thousand_keys_are_placed_at_once(bandwidths):
    start_s = time.process_time()
    Balancer(bandwidths).place([1 + i % 4096 for i in range(100_000)])
    assert time.process_time() - start_s < 2.0


@pytest.mark.parametrize("bandwidths", [[], [0.0], [1.0, -1.0], [float("nan")], [float("inf")]])
def test_impossible_bandwidths_are_refused(bandwidths):
    with pytest.raises(ConfigError):
        Balancer(bandwidths)


def test_a_negative_size_changes_nothing():
    balancer = Balancer([1.0, 1.0])
    with pytest.raises(ConfigError, match="got -1"):
        balancer.place([10, -1])
    assert balancer.loads() == [0, 0]


def test_a_server_without_bandwidth_gets_nothing():
    balancer = Balancer([0.0, 1.0, 0.0, 1.0])
    assert balancer.place([100] * 4) == [1, 3, 1, 3]
    assert balancer.loads()[::2] == [0, 0]
    assert balancer.shares() == (0.0, 0.5, 0.0, 0.5)
