"""The control channel: who meets, who is heard, who is gone."""

import threading

import pytest
from tests.collective.ranks import LIMIT_S, on_ranks
from torch.distributed import HashStore

from bireme.collective import Topology
from bireme.collective.channel import Gone, Heard, _addresses, meet
from bireme.errors import RankLost, WaitTimeout


@pytest.fixture
def channels():
    store = HashStore()
    met = on_ranks(
        3, lambda rank: meet(Topology.on_one_machine(rank, 3), store, LIMIT_S, b"notice")
    )
    assert [notice for _, notice in met] == [b"notice"] * 3
    channels = [channel for channel, _ in met]
    yield channels
    on_ranks(3, lambda rank: channels[rank].close())


def news(channel, count):
    found = []
    while len(found) < count:
        found += channel.poll(LIMIT_S)
    return found


def test_rank_0_is_in_the_middle(channels):
    assert [sorted(channel.peers) for channel in channels] == [[1, 2], [0], [0]]
    channels[1].send(0, b"one")
    channels[2].send(0, b"two")
    assert sorted(news(channels[0], 2)) == [Heard(1, b"one"), Heard(2, b"two")]
    channels[0].send(2, b"answer")
    assert news(channels[2], 1) == [Heard(0, b"answer")]


def test_what_is_said_before_all_are_there_is_not_lost():
    store = HashStore()
    first_has_spoken = threading.Event()

    def begin(rank):
        if rank == 2:
            assert first_has_spoken.wait(LIMIT_S)
        channel, _ = meet(Topology.on_one_machine(rank, 3), store, LIMIT_S, b"")
        if rank == 1:
            channel.send(0, b"early")
            first_has_spoken.set()
        return channel

    channels = on_ranks(3, begin)
    channels[2].send(0, b"late")
    assert sorted(news(channels[0], 2)) == [Heard(1, b"early"), Heard(2, b"late")]
    on_ranks(3, lambda rank: channels[rank].close())


def test_a_rank_that_goes_is_heard_of_and_may_be_sent_to(channels):
    thread = threading.Thread(target=channels[1].close)
    thread.start()
    (gone,) = news(channels[0], 1)
    thread.join(LIMIT_S)
    assert isinstance(gone, Gone)
    assert gone.rank == 1
    channels[0].send(1, b"nobody")


def test_large_messages_are_known_until_they_have_left(channels):
    body = bytes(8 << 20)
    channels[0].send(1, body)
    assert channels[0].has_unsent
    received = []
    thread = threading.Thread(target=lambda: received.extend(news(channels[1], 1)))
    thread.start()
    while channels[0].has_unsent:
        channels[0].poll(LIMIT_S)
    thread.join(LIMIT_S)
    assert received == [Heard(0, body)]


def test_waking_ends_a_poll(channels):
    channels[0].wake()
    assert channels[0].poll(LIMIT_S) == []


def test_a_rank_0_that_does_not_come_is_named():
    with pytest.raises(WaitTimeout, match=r"rank 1 waited 0.1 s for rank 0"):
        meet(Topology.on_one_machine(1, 2), HashStore(), 0.1, b"")


def test_a_rank_0_that_has_gone_is_named():
    store = HashStore()
    with pytest.raises(WaitTimeout):
        meet(Topology.on_one_machine(0, 2), store, 0.1, b"")
    with pytest.raises(RankLost, match="rank 1 cannot reach rank 0"):
        meet(Topology.on_one_machine(1, 2), store, 0.1, b"")


def test_other_machines_are_reached_by_tcp():
    class Store:
        host = "10.0.0.1"

    class Prefix:
        underlying_store = Store()

    told = {
        "addresses": ["unix://@x?machine=another", "tcp://0.0.0.0:77"],
        "host": "alpha",
    }
    assert _addresses(told, Prefix()) == ["tcp://10.0.0.1:77", "tcp://alpha:77"]
    assert _addresses(told, object()) == ["tcp://alpha:77"]


def test_ranks_of_two_machines_meet_over_tcp():
    store = HashStore()

    def place(rank):
        return Topology(
            rank=rank, size=2, local_rank=0, local_size=1, cross_rank=rank, cross_size=2
        )

    met = on_ranks(2, lambda rank: meet(place(rank), store, LIMIT_S, b""))
    met[1][0].send(0, b"hello")
    assert news(met[0][0], 1) == [Heard(1, b"hello")]
    on_ranks(2, lambda rank: met[rank][0].close())
