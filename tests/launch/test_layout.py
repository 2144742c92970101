"""Places follow from hosts and numbers alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.launch.hosts import Host
from bireme.launch.layout import lay_out
from bireme.types import Role


def laid(hosts, *numbers):
    named = [Host(name=name, slots=slots) for name, slots in hosts.items()]
    return {place.host.name: " ".join(map(str, place.nodes)) for place in lay_out(named, *numbers)}


def test_slots_are_filled_in_order():
    assert laid({"a": 2, "b": 4, "c": 1}, 4, 0) == {"a": "W[0] W[1]", "b": "W[2] W[3]"}


def test_without_slots_workers_are_spread():
    assert laid({"a": None, "b": None, "c": None}, 4, 0) == {
        "a": "W[0] W[1]",
        "b": "W[2]",
        "c": "W[3]",
    }


def test_who_has_no_slots_among_others_has_one():
    assert laid({"a": None, "b": 2}, 3, 0) == {"a": "W[0]", "b": "W[1] W[2]"}


def test_servers_are_spread_and_the_scheduler_is_first():
    assert laid({"a": 1, "b": 1}, 2, 3) == {"a": "H S[0] S[2] W[0]", "b": "S[1] W[1]"}


def test_the_scheduler_goes_where_the_user_says():
    hosts = {"a": 1, "b": 1, "c": 1}
    assert laid(hosts, 2, 1, "b")["b"] == "H W[1]"
    assert laid(hosts, 2, 1, "c")["c"] == "H"
    assert laid(hosts, 2, 1, "head") == {"a": "S[0] W[0]", "b": "W[1]", "head": "H"}


def test_too_few_slots():
    with pytest.raises(ConfigError, match="5 workers do not fit into the 3 slots of 2 hosts"):
        laid({"a": 2, "b": 1}, 5, 1)


@given(
    st.lists(st.none() | st.integers(1, 5), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_every_node_has_one_place(slots, num_workers, num_servers):
    hosts = [Host(name=f"h{index}", slots=count) for index, count in enumerate(slots)]
    try:
        places = lay_out(hosts, num_workers, num_servers)
    except ConfigError:
        assert num_workers > sum(count or 1 for count in slots)
        return
    nodes = [node for place in places for node in place.nodes]
    assert len(set(nodes)) == len(nodes) == num_workers + num_servers + bool(num_servers)
    workers = [node.rank for node in nodes if node.role is Role.WORKER]
    assert workers == list(range(num_workers))
    assert places == lay_out(hosts, num_workers, num_servers)
