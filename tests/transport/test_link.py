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
