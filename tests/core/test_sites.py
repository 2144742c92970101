"""Members become machines: shares and frame sizes follow links, hosts, and what was declared."""

import pytest
from msgspec.structs import replace

from bireme.core.sites import server_weights, ways, with_frames
from bireme.types.nodes import SCHEDULER, server, worker
from bireme.wire.messages import JobConfig, NodeInfo


def info(node, host, mbps=0.0, bandwidth=1.0):
    return NodeInfo(node, 2, host, 1, (), bandwidth, mbps)


def job(workers, servers, mbps=None):
    """Members by the hosts of workers and servers."""
    mbps = mbps or {}
    nodes = [NodeInfo(SCHEDULER, 1, "a", 0, ())]
    nodes += [info(worker(i), host, mbps.get(host, 0.0)) for i, host in enumerate(workers)]
    return nodes + [info(server(i), host, mbps.get(host, 0.0)) for i, host in enumerate(servers)]


def test_servers_on_one_machine_share_equally():
    assert server_weights(job("aaaa", "aa")) == [0.5, 0.5]


def test_machines_that_only_serve_take_more():
    weights = server_weights(job("abcd", "abcdef"))
    assert weights == pytest.approx([0.1] * 4 + [0.3] * 2)


def test_servers_come_by_rank_whatever_the_order_of_members():
    nodes = job("abcd", "efab")
    assert server_weights(reversed(nodes)) == server_weights(nodes)


def test_a_slow_machine_takes_less_and_an_unknown_one_counts_as_usual():
    weights = server_weights(job("abcd", "ef", {"a": 100, "b": 100, "e": 100, "f": 50}))
    assert weights == pytest.approx([2 / 3, 1 / 3])
    assert server_weights(job("abcd", "ef", {"e": 100})) == pytest.approx([0.5, 0.5])


def test_declared_weights_are_taken_as_they_are():
    nodes = [info(worker(0), "a"), info(server(0), "b", 10, 2.0), info(server(1), "c", 1000, 1.0)]
    assert server_weights(nodes) == [2.0, 1.0]


def test_a_link_of_no_finite_speed_counts_as_unknown():
    nodes = job("ab", "cd", {"c": float("inf"), "d": float("nan")})
    assert server_weights(nodes) == [0.5, 0.5]


def frames(nodes, slice_bytes=1 << 20):
    config = JobConfig(2, 1, 2, slice_bytes=slice_bytes, bundle_bytes=2 << 20)
    config = with_frames(config, nodes)
    return config.slice_bytes, config.bundle_bytes


def test_frames_follow_the_slowest_link():
    assert frames(job("ab", "c", {"a": 50, "b": 1000})) == (32768, 32768)


def test_frames_are_whole_slices_where_no_link_is_stated_or_none_is_used():
    assert frames(job("ab", "c")) == (1 << 20, 1 << 20)
    assert frames(job("aa", "a", {"a": 50})) == (1 << 20, 1 << 20)


def sharing(workers, servers, but=()):
    """Members whose servers listen for neighbours too, except for some."""
    far, near = "tcp://h:1", "shm+unix://@bireme-1?machine=5f"
    listening = [server(rank) for rank in range(len(servers))]
    return [
        replace(each, addresses=(far,) if each.node in but else (near, far))
        if each.node in listening
        else each
        for each in job(workers, servers)
    ]


def test_bundles_are_large_where_all_share_memory():
    assert frames(sharing("aa", "aa")) == (1 << 20, 2 << 20)


@pytest.mark.parametrize(
    "nodes",
    [sharing("aa", "aa", [server(1)]), sharing("ab", "aa"), sharing("aa", "ab")],
    ids=["a server by sockets", "two workers' machines", "two servers' machines"],
)
def test_bundles_are_smaller_where_values_come_over_sockets(nodes):
    assert frames(nodes) == (1 << 20, 1 << 20)


def test_smaller_slices_that_were_asked_for_travel_in_bundles_that_follow_the_link():
    assert frames(job("ab", "c", {"a": 50}), 4096) == (4096, 32768)


def test_what_is_known_of_each_link_is_told():
    nodes = job("ab", "bc", {"a": 100, "b": 50.4})
    found = ways(nodes, {"b"}, [0.25, 0.75])
    assert [tuple(each) for each in found] == [
        ("a", 100, "stated", 0.0),
        ("b", 50.4, "measured", 0.25),
        ("c", 0.0, "unknown", 0.75),
    ]
    assert str(found[1]) == "the link of b is 50 Mbit/s (measured); servers there hold 25%"
    assert "unknown speed" in str(found[2])
