"""The best address between two nodes."""

import itertools

import pytest

from bireme.errors import ConfigError
from bireme.transport.choose import best_address

TCP = "tcp://10.0.0.7:9000"
UNIX = "unix://@a?machine=5f"
SHARED = "shm+unix://@b?machine=5f"
INPROC = "inproc://server"


@pytest.mark.parametrize(
    ("machine", "names", "best"),
    [
        ("5f", ["server"], INPROC),
        ("5f", [], SHARED),
        ("aa", ["other"], TCP),
        ("", [], TCP),
    ],
)
def test_the_fastest_that_reaches_wins_in_any_order(
    machine: str, names: list[str], best: str
) -> None:
    for addresses in itertools.permutations([TCP, UNIX, SHARED, INPROC]):
        assert best_address(addresses, machine, names) == best


def test_local_addresses_that_do_not_say_where_are_passed_over() -> None:
    assert best_address(["shm+unix://@b", TCP], "5f") == TCP


@pytest.mark.parametrize("addresses", [[], [SHARED], [INPROC]])
def test_no_way_is_an_error_that_lists_them(addresses: list[str]) -> None:
    with pytest.raises(ConfigError, match="tcp:// address too"):
        best_address(addresses, "aa")
