import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.train.workload import (
    EvenShares,
    FixedShares,
    check_loads,
    even_sizes,
    proportional_sizes,
    work_load_sizes,
)

loads_lists = st.lists(st.floats(0, 100), min_size=1, max_size=9).filter(any)


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 20))
def test_even_sizes_differ_by_one_at_most(batch_size, num_slice):
    sizes = even_sizes(batch_size, num_slice)
    assert len(sizes) == num_slice
    assert sum(sizes) == batch_size
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("batch_size", "loads", "sizes"),
    [
        (10, [1, 1, 1], [3, 3, 4]),
        (10, [1, 2, 3], [2, 3, 5]),
        (5, [1, 1], [2, 3]),
        (8, [3, 1], [6, 2]),
        (7, [1, 0, 1], [4, 0, 3]),
    ],
)
def test_work_loads_round_and_the_last_takes_the_rest(batch_size, loads, sizes):
    assert work_load_sizes(batch_size, loads) == sizes


def test_rounding_up_does_not_starve_the_last():
    # Upstream's rule alone would give 1, 1, 1, 1, 1, 1, 1, 1, -3 and 2, 2, 2, 2, 2, 2, 0.
    assert work_load_sizes(5, [1] * 9) == [1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert work_load_sizes(12, [1] * 7) == [2, 2, 2, 2, 2, 1, 1]


@pytest.mark.parametrize("split", [work_load_sizes, proportional_sizes])
@settings(deadline=None)
@given(batch_size=st.integers(0, 300), loads=loads_lists)
def test_sizes_cover_the_batch_and_starve_nobody(split, batch_size, loads):
    sizes = split(batch_size, loads)
    assert sum(sizes) == batch_size
    assert min(sizes) >= 0
    for size, load in zip(sizes, loads, strict=True):
        if load == 0:
            assert size == 0
        elif batch_size >= len(loads):
            assert size >= 1


@settings(deadline=None)
@given(st.integers(1, 1000), st.lists(st.floats(1, 5), min_size=1, max_size=6))
def test_proportional_sizes_are_within_one_sample(batch_size, loads):
    if batch_size < 6 * len(loads):
        return
    exact = [load * batch_size / math.fsum(loads) for load in loads]
    sizes = proportional_sizes(batch_size, loads)
    assert all(abs(size - want) < 1 for size, want in zip(sizes, exact, strict=True))


@pytest.mark.parametrize(
    "loads", [[], [0, 0], [-1, 2], [math.nan], [math.inf, 1], ["3", 1], [True, 1], [1e308, 1e308]]
)
def test_bad_loads_are_refused(loads):
    with pytest.raises(ConfigError, match="load"):
        check_loads(loads)
    with pytest.raises(ConfigError):
        work_load_sizes(4, loads)


@pytest.mark.parametrize("arguments", [(4, 0), (4, -1), (4, True), (4, 2.0), (-1, 2)])
def test_bad_counts_are_refused(arguments):
    with pytest.raises(ConfigError):
        even_sizes(*arguments)


def test_shares_add_up_and_learn_nothing():
    for shares in (EvenShares(3), FixedShares([1, 2, 1])):
        before = shares.shares
        assert math.fsum(before) == pytest.approx(1)
        assert not shares.measures
        shares.record([1, 1, 1], [1.0, 2.0, 3.0])
        assert shares.shares == before
    assert EvenShares(3).sizes(10) == [4, 3, 3]
    assert FixedShares([1, 2, 1]).sizes(8) == [2, 4, 2]
