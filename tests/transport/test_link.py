"""A socket link on its own: what a broken owner or a late event may not do."""

import os
import threading

import pytest

from bireme.transport.base import Arrived, Closed, Frame, Link
from bireme.transport.tcp import SocketTransport
from bireme.wire.header import write_header

LIMIT_S = 20.0


@pytest.fixture
def ends():
    server, client = SocketTransport(), SocketTransport()
    address = server.listen("unix://")
    thread = threading.Thread(target=server.poll, args=(LIMIT_S,))
    thread.start()
    link = client.connect(address, LIMIT_S)
    thread.join()
    client.poll(0)
    yield server, client, link
    client.close()
    server.close()


def test_an_error_in_the_sink_comes_out_of_poll_and_closes_the_link(ends) -> None:
    server, client, link = ends

    def broken(link: Link, head: bytes, size: int) -> memoryview:
        raise KeyError("a defect")

    server.sink = broken
    link.send(Frame(write_header(7, b"", 1 << 20), [bytes(1 << 20)]))
    with pytest.raises(KeyError):
        server.poll(LIMIT_S)
    (closed,) = server.poll(LIMIT_S)
    assert isinstance(closed, Closed)
    (closed,) = client.poll(LIMIT_S)
    assert isinstance(closed, Closed)


@pytest.mark.parametrize("target", [b"abc", bytearray(2)])
def test_a_sink_that_names_unfit_memory_closes_the_link(ends, target: bytes | bytearray) -> None:
    server, _, link = ends
    server.sink = lambda link, head, size: memoryview(target)
    link.send(Frame(write_header(7, b"", 1 << 20), [bytes(1 << 20)]))
    (closed,) = server.poll(LIMIT_S)
    assert isinstance(closed, Closed)
    assert "sink" in closed.reason


def test_a_link_closed_between_two_frames_of_one_read_delivers_no_more(ends) -> None:
    server, client, link = ends
    link.send(Frame(write_header(7, b"", 0)))
    link.send(Frame(write_header(8, b"", 0)))
    (first, *_) = server.poll(LIMIT_S)
    assert isinstance(first, Arrived)
    first.link.abort("enough")
    events = server.poll(LIMIT_S)
    assert isinstance(events[-1], Closed)
    assert events[-1].reason == "enough"
    while not any(isinstance(event, Closed) for event in client.poll(LIMIT_S)):
        pass


def test_its_text_names_the_peer(ends) -> None:
    assert "unix://@bireme-" in repr(ends[2])


def test_closing_a_link_frees_its_descriptor_at_once(ends) -> None:
    server, client, link = ends
    num_files = len(os.listdir("/proc/self/fd"))
    link.close()
    while not any(isinstance(event, Closed) for event in server.poll(LIMIT_S)):
        pass
    while not any(isinstance(event, Closed) for event in client.poll(LIMIT_S)):
        pass
    assert len(os.listdir("/proc/self/fd")) == num_files - 2


def small(number: int = 1) -> Frame:
    return Frame(write_header(7, b"", 4), [number.to_bytes(4, "little")])


def test_what_is_taken_at_once_is_no_event_and_counts_as_released(ends) -> None:
    server, _, link = ends
    taken = []

    def take(link: Link, head: bytes, payload: memoryview) -> bool:
        taken.append((head, bytes(payload)))
        server.returns_soon = True
        return True

    server.express = take
    assert server.poll(0) == []
    for number in range(3):
        link.send(small(number))
        assert server.poll(LIMIT_S) == []
    assert [payload[0] for _, payload in taken] == [0, 1, 2]
    (accepted,) = server._links
    statistics = accepted.statistics()
    assert (statistics.frames_received, statistics.unreleased_bytes) == (3, 0)


def test_what_is_not_taken_is_an_event(ends) -> None:
    server, _, link = ends
    server.express = lambda link, head, payload: False
    link.send(small())
    (arrived,) = server.poll(LIMIT_S)
    assert bytes(arrived.frame.payload) == b"\1\0\0\0"
    arrived.frame.release()


def test_nothing_overtakes_an_event_that_waits(ends) -> None:
    server, _, link = ends
    offered = []

    def refuse_the_first(link: Link, head: bytes, payload: memoryview) -> bool:
        offered.append(payload[0])
        return payload[0] != 0

    server.express = refuse_the_first
    link.send(small(0))
    link.send(small(1))
    events = server.poll(LIMIT_S)
    while len(events) < 2:
        events += server.poll(LIMIT_S)
    assert [event.frame.payload[0] for event in events] == [0, 1]


def test_nothing_is_offered_while_connect_drives_the_loop(ends) -> None:
    server, _, link = ends
    offered = []
    server.express = lambda *frame: offered.append(frame) is None
    link.send(small())
    other = SocketTransport()
    address = other.listen("unix://")
    thread = threading.Thread(target=other.poll, args=(LIMIT_S,))
    thread.start()
    server.connect(address, LIMIT_S)
    thread.join()
    assert offered == []
    assert any(isinstance(event, Arrived) for event in server.poll(LIMIT_S))
    other.close()


def test_what_goes_at_once_arrives_like_all_else(ends) -> None:
    server, _, link = ends

    class Memory:
        def retain(self) -> None:
            raise AssertionError("the system takes so little at once")

        release = retain

    head = write_header(7, b"", 40_000)
    assert link.send_at_once(head, [memoryview(bytes(40_000))], 40_000, Memory())
    (arrived,) = server.poll(LIMIT_S)
    assert (arrived.frame.head, len(arrived.frame.payload)) == (head, 40_000)
    arrived.frame.release()


LARGE = 1 << 20


def receive_a_part(server, link, head, payload):
    """Have the server begin to receive a payload; return the end of its link."""
    accepted = next(iter(server._links))
    assert link.stream.send([head, payload]) == len(head) + len(payload)
    while accepted._reader.num_bytes < len(head) + len(payload):
        assert server.poll(0.01) == []
    return accepted


def next_event(server, client):
    """Return the only event that comes next, while the client goes on sending."""
    events = server.poll(0.01)
    while not events:
        client.poll(0)
        events = server.poll(0.01)
    (event,) = events
    return event


def test_the_memory_of_a_payload_that_is_cut_off_goes_back_to_the_pool_once(ends) -> None:
    server, client, link = ends
    accepted = receive_a_part(server, link, write_header(7, b"", LARGE), bytes(50_000))
    memory = accepted._pooled.obj
    assert server.pool.idle_bytes == 0
    link.abort("cut")
    assert "middle of a frame" in next_event(server, client).reason
    accepted.finish("a second time")
    assert server.pool.idle_bytes == LARGE
    assert server.pool.take(LARGE).obj is memory


def test_the_memory_of_a_damaged_payload_goes_back_to_the_pool(ends) -> None:
    server, client, link = ends
    link.send(Frame(write_header(7, b"", LARGE, payload_crc=1), [bytes(LARGE)]))
    assert "checksum" in next_event(server, client).reason
    assert server.pool.idle_bytes == LARGE


def test_the_memory_of_a_payload_behind_a_goodbye_goes_back_to_the_pool(ends) -> None:
    server, client, link = ends
    (accepted,) = server._links
    accepted._goodbye = True
    link.send(Frame(write_header(7, b"", LARGE), [bytes(LARGE)]))
    assert "behind its goodbye" in next_event(server, client).reason
    assert server.pool.idle_bytes == LARGE


def test_a_payload_that_was_handed_over_keeps_its_memory_when_its_link_ends(ends) -> None:
    server, client, link = ends
    link.send(Frame(write_header(7, b"", LARGE), [b"kept" * (LARGE // 4)]))
    arrived = next_event(server, client)
    link.abort("cut")
    assert isinstance(next_event(server, client), Closed)
    assert server.pool.idle_bytes == 0
    assert bytes(arrived.frame.payload) == b"kept" * (LARGE // 4)
    arrived.frame.release()
    assert server.pool.idle_bytes == LARGE


def test_memory_that_a_sink_named_is_not_the_pools(ends) -> None:
    server, client, link = ends
    target = memoryview(bytearray(LARGE))
    server.sink = lambda link, head, size: target
    receive_a_part(server, link, write_header(7, b"", LARGE), bytes(50_000))
    link.abort("cut")
    assert isinstance(next_event(server, client), Closed)
    assert server.pool.idle_bytes == 0
