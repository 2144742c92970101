"""Nodes are named, sorted and read as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.types import SCHEDULER, NodeId, Role, server, worker

NODES = st.just(SCHEDULER) | st.builds(
    NodeId, st.sampled_from([Role.SERVER, Role.WORKER]), st.integers(0, 10**6)
)


def test_names():
    assert [repr(node) for node in (SCHEDULER, server(0), worker(12))] == ["H", "S[0]", "W[12]"]
    assert f"{worker(1)} waits" == "W[1] waits"


def test_order_is_role_then_rank():
    nodes = [worker(10), worker(2), server(1), SCHEDULER, server(0)]
    assert sorted(nodes) == [SCHEDULER, server(0), server(1), worker(2), worker(10)]


@given(NODES)
def test_names_read_back(node):
    assert NodeId.parse(repr(node)) == node
    assert len({node, NodeId.parse(f" {node} ")}) == 1


@pytest.mark.parametrize("text", ["", "H[0]", "W", "w[1]", "W[-1]", "W[1", "X[1]", "W[1]x"])
def test_other_names_are_refused(text):
    with pytest.raises(ConfigError, match="cannot read"):
        NodeId.parse(text)


def test_ranks_that_do_not_exist_are_refused():
    for rank in (-1, 2**31):
        with pytest.raises(ConfigError, match=f"got {rank}"):
            worker(rank)
    with pytest.raises(ConfigError, match="one scheduler"):
        NodeId(Role.SCHEDULER, 1)


def test_nodes_do_not_change():
    with pytest.raises(AttributeError):
        worker(1).rank = 2
