import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.data.dealing import Deal
from bireme.errors import ConfigError

shares_lists = st.lists(st.integers(1, 9), min_size=1, max_size=6)
counts = st.integers(0, 200)


@given(shares=shares_lists, count=counts)
def test_every_part_stays_within_its_quota_at_every_place(shares, count):
    deal = Deal(shares)
    sizes = deal.sizes(count)
    assert sum(sizes) == count
    for size, share in zip(sizes, shares, strict=True):
        exact = count * share / sum(shares)
        assert math.floor(exact) <= size <= math.ceil(exact)


@given(shares=shares_lists, count=counts)
def test_places_are_an_exact_cover(shares, count):
    deal = Deal(shares)
    places = [deal.places(part, count) for part in range(len(shares))]
    assert tuple(map(len, places)) == deal.sizes(count)
    assert sorted(np.concatenate(places).tolist()) == list(range(count))
    assert all((np.diff(part) > 0).all() for part in places)


@given(shares=shares_lists, count=counts)
def test_whole_cycles_are_exactly_proportional(shares, count):
    deal = Deal(shares)
    whole = deal.whole(count)
    assert count - len(deal.cycle) < whole <= count
    sizes = deal.sizes(whole)
    assert all(
        size * sum(shares) == whole * share for size, share in zip(sizes, shares, strict=True)
    )


def test_equal_shares_deal_in_turn():
    assert Deal([5, 5, 5]).cycle.tolist() == [0, 1, 2]
    assert Deal([1] * 5000).cycle.tolist() == list(range(5000))


def test_unequal_shares_are_mixed_not_in_blocks():
    assert Deal([2, 2, 1]).cycle.tolist() == [0, 1, 0, 1, 2]
    assert Deal([100, 99]).sizes(50) == (25, 25)


@given(data=st.data(), shares=shares_lists, count=counts)
def test_what_is_left_is_the_complement_of_what_was_used(data, shares, count):
    deal = Deal(shares)
    positions = [data.draw(st.integers(0, size)) for size in deal.sizes(count)]
    used = [deal.places(part, count)[:at] for part, at in enumerate(positions)]
    left = deal.left(positions, count)
    assert sorted(np.concatenate([*used, left]).tolist()) == list(range(count))
    assert (np.diff(left) > 0).all()


@given(data=st.data(), shares=shares_lists, count=counts, turns=st.integers(0, 60))
def test_in_step_agrees_with_really_advancing_in_step(data, shares, count, turns):
    deal = Deal(shares)
    sizes = deal.sizes(count)
    truth = tuple(min(turns * share, size) for share, size in zip(deal.shares, sizes, strict=True))
    part = data.draw(st.integers(0, len(shares) - 1))
    assert deal.in_step(part, truth[part], count) in (truth, None)
    # A part that still has samples always tells, and so does the one that lasts longest.
    if truth[part] < sizes[part]:
        assert deal.in_step(part, truth[part], count) == truth
    longest = max(range(len(shares)), key=lambda at: -(-sizes[at] // deal.shares[at]))
    assert deal.in_step(longest, truth[longest], count) == truth


def test_in_step_does_not_guess():
    assert Deal([3, 1]).in_step(0, 4, 40) is None  # between two turns
    assert Deal([1, 1]).in_step(1, 3, 7) is None  # part 0 may have one more to go
    assert Deal([1, 1]).in_step(0, 4, 7) == (4, 3)
    assert Deal([1, 1, 1]).in_step(2, 0, 2) is None  # an empty part knows nothing


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([], "empty"),
        ([1, 0], "got 0"),
        ([1, -2], "got -2"),
        ([0.5, 0.5], "got 0.5"),
        ([True, 1], "got True"),
        ([65536, 1], "65537"),
    ],
)
def test_refuses_other_shares(shares, says):
    with pytest.raises(ConfigError, match=says):
        Deal(shares)


def test_large_shares_with_a_common_divisor_are_fine():
    assert Deal([3_000_000, 1_000_000]).cycle.tolist() == [0, 0, 0, 1]
