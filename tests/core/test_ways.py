import pytest

from bireme.core.actions import Connect, Log, Send
from bireme.core.member import RETRY_S
from bireme.core.ways import Ways
from bireme.types.nodes import server, worker
from bireme.wire.messages import Attach, NodeInfo

ATTACH = Attach(worker(0), 7, 1)


def new_ways(num_servers=1):
    infos = [NodeInfo(server(rank), 2, "b", 1, (f"tcp://{rank}",)) for rank in range(num_servers)]
    return Ways(worker(0), 7, infos)


def linked_ways():
    ways = new_ways()
    assert ways.linked(30, server(0), 1, 0.0) == [Send(30, ATTACH)]
    return ways


def test_it_connects_to_every_server():
    connects = new_ways(2).start()
    assert connects == [Connect(server(0), ("tcp://0",)), Connect(server(1), ("tcp://1",))]


def test_a_server_takes_messages_once_it_has_said_so():
    ways = linked_ways()
    assert ways.link_to(0) is None
    assert ways.attached(30) == 0
    assert ways.link_to(0) == 30
    assert ways.attached(30) is None
    assert ways.next_deadline_s() is None


def test_an_attach_without_an_answer_is_sent_again():
    ways = linked_ways()
    assert ways.next_deadline_s() == 1.0
    assert ways.tick(1, 0.5) == []
    assert ways.tick(1, 1.0) == [Send(30, ATTACH)]
    assert ways.next_deadline_s() == 2.0


def test_a_refused_connection_is_tried_again():
    ways = new_ways()
    ways.failed(0, 5.0)
    assert ways.next_deadline_s() == 5.0 + RETRY_S
    assert ways.tick(1, 5.0 + RETRY_S) == [Connect(server(0), ("tcp://0",))]
    assert ways.next_deadline_s() is None


@pytest.mark.parametrize(("is_needed", "level"), [(True, "warning"), (False, "debug")])
def test_a_lost_link_is_made_again(is_needed, level):
    ways = linked_ways()
    ways.attached(30)
    log, connect = ways.lost(30, "reset", is_needed=is_needed)
    assert log == Log(level, "the relay lost the link to S[0]: reset")
    assert connect == Connect(server(0), ("tcp://0",))
    assert (ways.link_to(0), 30 in ways.by_link) == (None, False)


def test_a_newer_link_takes_the_place_of_an_older_one():
    ways = linked_ways()
    ways.linked(31, server(0), 1, 0.0)
    assert list(ways.by_link) == [31]
    assert ways.attached(31) == 0
