"""Shares by links equal the closed forms where there are some, else the best of a search."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.placement.links import Site, frame_bytes, spread

BOTH = Site(1.0, num_workers=1, num_servers=1)
WORKER = Site(1.0, num_workers=1, num_servers=0)
SERVER = Site(1.0, num_workers=0, num_servers=1)

SITES = st.lists(
    st.builds(Site, st.sampled_from([0.5, 1.0, 2.0, 10.0]), st.integers(0, 3), st.integers(0, 2)),
    min_size=1,
    max_size=5,
).filter(lambda sites: any(each.num_servers for each in sites))


def duration(sites, shares):
    """The time of the busiest link, from the traffic itself."""
    num_workers = sum(site.num_workers for site in sites)
    times = []
    for site, share in zip(sites, shares, strict=True):
        pushed = site.num_workers * (1 - share)
        answered = (num_workers - site.num_workers) * share
        times.append((pushed + answered) / site.speed)
    return max(times)


@pytest.mark.parametrize("n", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("part", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_equal_links_give_the_known_optimum(n, part):
    k = round(part * n)
    found = spread([BOTH] * n + [SERVER] * k)
    whole = n * n + k * n - 2 * k
    assert found.duration == pytest.approx(2 * n * (n - 1) / whole)
    if n > 2:
        assert found.shares[:n] == pytest.approx([(n - k) / whole] * n, abs=1e-9)
        assert found.shares[n:] == pytest.approx([2 * (n - 1) / whole] * k)


def test_with_as_many_servers_as_workers_the_workers_machines_hold_nothing():
    assert spread([BOTH] * 4 + [SERVER] * 4).shares == (0.0,) * 4 + (0.25,) * 4


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_separate_servers_are_bound_by_the_servers_or_by_the_workers(k):
    found = spread([WORKER] * 4 + [SERVER] * k)
    assert found.shares == pytest.approx([0.0] * 4 + [1 / k] * k)
    assert found.duration == pytest.approx(max(1.0, 4 / k))


@given(SITES)
def test_the_duration_is_that_of_the_traffic(sites):
    found = spread(sites)
    assert sum(found.shares) == pytest.approx(1)
    assert all(share >= 0 for share in found.shares)
    for site, share in zip(sites, found.shares, strict=True):
        assert site.num_servers or not share
    assert duration(sites, found.shares) <= found.duration + 1e-6


@given(SITES.filter(lambda sites: 2 <= len(sites) <= 4))
def test_no_other_division_is_faster(sites):
    found = spread(sites)
    grid = [number / 10 for number in range(11)]
    for some in itertools.product(grid, repeat=len(sites) - 1):
        shares = [*some, 1 - sum(some)]
        if shares[-1] < -1e-9 or any(
            share > 0 and not site.num_servers for share, site in zip(shares, sites, strict=True)
        ):
            continue
        assert found.duration <= duration(sites, shares) + 1e-6


def test_a_slow_link_takes_less():
    slow = Site(0.5, num_workers=0, num_servers=1)
    shares = spread([WORKER] * 4 + [SERVER, slow]).shares
    assert shares[4] == pytest.approx(2 * shares[5])


def test_one_machine_needs_no_network():
    found = spread([Site(1.0, num_workers=4, num_servers=2)])
    assert found.shares == (1.0,)
    assert found.duration < 1e-9


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_is_a_positive_number(speed):
    with pytest.raises(ConfigError, match="must be > 0"):
        spread([Site(speed, 1, 1)])


def test_without_a_server_there_is_no_place():
    with pytest.raises(ConfigError, match="at least one server"):
        spread([WORKER])


@pytest.mark.parametrize(
    ("mbit", "size"), [(1, 32768), (50, 32768), (200, 65536), (1000, 262144), (100_000, 1 << 20)]
)
def test_frames_take_some_milliseconds(mbit, size):
    assert frame_bytes(mbit * 1e6 / 8, 1 << 20) == size
