import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.placement.rows import home, mixed, stream_of


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000))
def test_every_id_has_one_home(row, num_servers):
    assert 0 <= home(row, num_servers) < num_servers


@pytest.mark.parametrize("step", [1, 2, 1000, 2**32, 3 * 2**40])
@pytest.mark.parametrize("num_servers", [2, 3, 7])
def test_rows_are_spread_evenly_however_they_are_numbered(step, num_servers):
    counts = collections.Counter(home(row * step, num_servers) for row in range(6000))
    share = 6000 / num_servers
    assert all(0.9 * share < counts[rank] < 1.1 * share for rank in range(num_servers))


def test_homes_are_fixed_for_all_time():
    assert [home(row, 5) for row in (-(2**63), -1, 0, 1, 2**63 - 1)] == HOMES
    assert mixed(1) == 0x910A2DEC89025CC1


HOMES = [1, 4, 4, 2, 0]


def test_no_two_ids_are_mixed_alike():
    assert len({mixed(row) for row in range(-5000, 5000)}) == 10_000


def test_a_job_without_servers_has_no_tables():
    with pytest.raises(ConfigError, match="server"):
        home(3, 0)


def test_streams_are_of_names():
    assert 0 <= stream_of("user") < 2**63
    assert len({stream_of(f"table{number}") for number in range(1000)}) == 1000
