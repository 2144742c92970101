"""What is worth holding: the most of late, or twice what lasts."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bireme.transport.demand import Demand

MIB = 1 << 20


def steps(demand: Demand, count: int, size_bytes: int) -> None:
    for _ in range(count):
        demand.took(size_bytes)
        demand.gave(size_bytes)


def test_a_demand_that_has_passed_is_forgotten() -> None:
    demand = Demand()
    steps(demand, 1, 100 * MIB)
    steps(demand, 5, 20 * MIB)
    assert demand.worth_bytes == 100 * MIB
    steps(demand, 40, 20 * MIB)
    assert demand.worth_bytes == 20 * MIB


def test_what_lasts_counts_twice_once_it_has_lasted() -> None:
    demand = Demand()
    demand.took(30 * MIB)
    assert demand.worth_bytes == 30 * MIB
    steps(demand, 200, 2 * MIB)
    assert demand.worth_bytes == 60 * MIB
    demand.gave(20 * MIB)
    assert demand.worth_bytes == 32 * MIB


def test_little_is_always_worth_holding() -> None:
    demand = Demand()
    assert demand.worth_bytes == 8 * MIB
    steps(demand, 10, 1000)
    assert demand.worth_bytes == 8 * MIB


@given(st.lists(st.integers(1, 64 * MIB), max_size=60), st.randoms(use_true_random=False))
def test_what_is_used_is_always_worth_holding(sizes: list[int], draws: Random) -> None:
    demand, taken, most_bytes = Demand(), [], 0
    for size_bytes in sizes:
        demand.took(size_bytes)
        taken.append(size_bytes)
        most_bytes = max(most_bytes, demand.used_bytes)
        while taken and draws.random() < 0.5:
            demand.gave(taken.pop(draws.randrange(len(taken))))
        assert demand.used_bytes == sum(taken)
        assert demand.used_bytes <= demand.worth_bytes <= max(2 * most_bytes, 8 * MIB)
