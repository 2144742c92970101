import pytest

from bireme.core.neighbours import neighbours_of, relayed_hosts
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import server, worker
from bireme.wire.messages import JobConfig, NodeInfo

CONFIG = JobConfig(4, 2, 4)


def members(*hosts, servers=("a", "b"), addresses=("unix://@r?machine=5f",)):
    nodes = [NodeInfo(worker(rank), 1, host, 1, addresses) for rank, host in enumerate(hosts)]
    nodes += [NodeInfo(server(rank), 1, host, 1, ()) for rank, host in enumerate(servers)]
    return nodes[::-1]


def test_the_first_worker_of_a_machine_leads():
    found = neighbours_of("b", members("a", "a", "b", "b"), CONFIG)
    assert found.leader.node == worker(2)
    assert found.ranks == (2, 3)
    assert [info.node for info in found.servers] == [server(0)]
    assert (found.turn, neighbours_of("a", members("a", "a", "b", "b"), CONFIG).turn) == (1, 0)


@pytest.mark.parametrize(
    ("nodes", "config"),
    [
        (members("a", "b", "c", "d"), CONFIG),
        (members("a", "a", "b", "b", servers=("a",)), CONFIG),
        (members("a", "a", "b", "b", addresses=()), CONFIG),
        (members("a", "a", "b", "b"), JobConfig(4, 2, 4, relay=False)),
        (members("a", "a", "b", "b"), JobConfig(4, 2, 4, death_policy=DeathPolicy.WAIT)),
        (members("a", "a", "b", "b"), JobConfig(4, 2, 4, death_policy=DeathPolicy.CONTINUE)),
    ],
    ids=["alone", "nothing elsewhere", "no address", "off", "wait", "continue"],
)
def test_nobody_relays_where_it_spares_nothing_or_is_not_asked_for(nodes, config):
    assert neighbours_of("a", nodes, config) is None
    assert "a" not in relayed_hosts(nodes, config)


def test_containers_of_one_host_do_not_share_a_relay():
    nodes = members("a", "a", servers=("b",))
    other = NodeInfo(worker(1), 1, "a", 1, ("unix://@r?machine=60",))
    nodes = [other if info.node == worker(1) else info for info in nodes]
    assert neighbours_of("a", nodes, CONFIG) is None


def test_machines_with_a_relay():
    assert relayed_hosts(members("a", "a", "b", "c"), CONFIG) == {"a"}
