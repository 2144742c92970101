"""Shared-memory links: what is copied, what comes back, and what happens when a side dies."""

import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launch.processes import names_in_shared_memory

from bireme.transport.base import Arrived, Closed, Frame, Link, LinkEvent, TransportOptions
from bireme.transport.framing import TransportKind, transport_head
from bireme.transport.tcp import SocketTransport
from bireme.wire.header import write_header

LIMIT_S = 50.0
MIB = 1 << 20


def head(size_bytes: int) -> bytes:
    return write_header(7, b"", size_bytes)


class Side:
    def __init__(self, **options: object) -> None:
        self.transport = SocketTransport(TransportOptions(**options))  # type: ignore[arg-type]
        self.events: list[LinkEvent] = []

    def until(self, ready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not ready():
            assert time.monotonic() < deadline_s
            self.events += self.transport.poll(0.01)

    def arrived(self) -> list[Arrived]:
        return [event for event in self.events if isinstance(event, Arrived)]

    def closed(self) -> list[Closed]:
        return [event for event in self.events if isinstance(event, Closed)]


def link_of(server: Side, client: Side) -> Link:
    address = server.transport.listen("shm+unix://")
    thread = threading.Thread(target=lambda: server.events.extend(server.transport.poll(LIMIT_S)))
    thread.start()
    link = client.transport.connect(address, LIMIT_S)
    thread.join()
    client.events += client.transport.poll(0)
    return link


@pytest.fixture
def sides():
    server, client = Side(), Side()
    link = link_of(server, client)
    yield server, client, link
    client.transport.close()
    server.transport.close()


def test_large_payloads_cross_in_memory_and_small_ones_in_the_socket(sides) -> None:
    server, _, link = sides
    for size_bytes in (100, MIB):
        link.send(Frame(head(size_bytes), [b"x" * size_bytes]))
    server.until(lambda: len(server.arrived()) == 2)
    small, large = (event.frame.payload for event in server.arrived())
    assert small.nbytes == 100
    assert large.nbytes == MIB == large.tobytes().count(b"x")
    assert large.obj is not small.obj
    assert server.arrived()[1].link._segments  # type: ignore[attr-defined]


def test_a_block_comes_back_and_is_used_again(sides) -> None:
    server, client, link = sides
    for count in range(1, 101):
        link.send(Frame(head(MIB), [bytes(MIB)]))
        server.until(lambda count=count: len(server.arrived()) == count)
        server.arrived()[-1].frame.release()
        client.events += client.transport.poll(0)
    # A quarter window may be released and unreported.
    assert client.transport._arena.used_bytes <= 6 * MIB


def test_allocated_memory_is_not_copied_and_on_sent_waits_for_the_reader(sides) -> None:
    server, client, link = sides
    buffer = client.transport.allocate(MIB)
    buffer.view[:5] = b"first"
    sent: list[bool] = []
    link.send(Frame(head(MIB), [buffer.view]), 0, lambda: sent.append(True))
    server.until(lambda: bool(server.arrived()))
    payload = server.arrived()[0].frame.payload
    assert bytes(payload[:5]) == b"first"
    buffer.view[:5] = b"later"
    assert bytes(payload[:5]) == b"later"
    client.events += client.transport.poll(0.01)
    assert sent == []
    server.arrived()[0].frame.release()
    assert server.transport.poll(0) == []
    client.until(lambda: sent == [True])


def test_a_block_that_is_waited_for_comes_back_with_the_next_frame(sides) -> None:
    server, client, link = sides
    sent: list[int] = []
    for number in range(3):
        buffer = client.transport.allocate(MIB)
        link.send(Frame(head(MIB), [buffer.view]), 0, lambda number=number: sent.append(number))
        server.until(lambda number=number: len(server.arrived()) == number + 1)
        server.arrived()[-1].frame.release()
        answers = len(client.arrived())
        server.arrived()[-1].link.send(Frame(head(0)))
        client.until(lambda answers=answers: len(client.arrived()) == answers + 1)
        assert sent == list(range(number + 1))


def test_what_does_not_fit_goes_through_the_socket() -> None:
    server, client = Side(), Side(shared_bytes=2 * MIB)
    link = link_of(server, client)
    for number in range(8):
        link.send(Frame(head(MIB), [bytes([number]) * MIB]))
    server.until(lambda: (client.transport.poll(0), len(server.arrived()) == 8)[1])
    assert [event.frame.payload[-1] for event in server.arrived()] == list(range(8))
    client.transport.close()
    server.transport.close()


def test_payloads_a_receiver_holds_survive_the_link_and_new_links(sides) -> None:
    server, client, link = sides
    link.send(Frame(head(MIB), [b"held" * (MIB // 4)]))
    server.until(lambda: bool(server.arrived()))
    link.abort("cut")
    client.until(lambda: bool(client.closed()))
    server.until(lambda: bool(server.closed()))
    again = link_of(server, client)
    for _ in range(16):
        again.send(Frame(head(MIB), [b"else" * (MIB // 4)]))
    server.until(lambda: len(server.arrived()) == 17)
    held = server.arrived()[0].frame
    assert bytes(held.payload) == b"held" * (MIB // 4)
    held.release()


CHILD = """
import sys
from bireme.transport.tcp import SocketTransport
transport = SocketTransport()
link = transport.connect(sys.argv[1], 50)
kept = []
while True:
    kept += transport.poll(None)
    print(len(kept), flush=True)
"""


@pytest.mark.timeout(180)
def test_memory_that_a_killed_reader_held_comes_back() -> None:
    server = Side()
    address = server.transport.listen("shm+unix://")
    command = [sys.executable, "-c", CHILD, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        server.until(lambda: bool(server.events))
        for _ in range(4):
            server.events[0].link.send(Frame(head(MIB), [bytes(MIB)]))
        assert child.stdout is not None
        while int(child.stdout.readline()) < 5:
            pass
        assert server.transport._arena.used_bytes == 4 * MIB
        names = names_in_shared_memory(os.getpid()) | names_in_shared_memory(child.pid)
        child.kill()
        server.until(lambda: bool(server.closed()))
    server.until(lambda: server.transport._arena.used_bytes == 0)
    server.transport.close()
    assert names.isdisjoint(os.listdir("/dev/shm"))


def test_names_in_shared_memory_would_be_seen() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        assert Path(file.name).name in names_in_shared_memory(os.getpid())


SHARED = struct.Struct("<QIBQQ")


@pytest.mark.parametrize(
    "broken",
    [
        transport_head(TransportKind.SHARED, SHARED.pack(1, 0, 0, 0, 5) + head(5)),
        transport_head(TransportKind.SHARED, b"short"),
        transport_head(TransportKind.SHARED, SHARED.pack(1, 0, 0, 0, 5)),
        transport_head(TransportKind.SEGMENT, struct.pack("<IQ", 0, 4096)),
        transport_head(TransportKind.SEGMENT, b""),
        transport_head(TransportKind.RETURNED, struct.pack("<QQ", 0, 77)),
        transport_head(TransportKind.RETURNED, b"123"),
        transport_head(TransportKind.RETURNED, struct.pack("<Q", 5)),
    ],
)
def test_malformed_notices_close_the_link_only(sides, broken: bytes) -> None:
    server, _, link = sides
    link._sender.send_own(broken)
    server.until(lambda: bool(server.closed()))
    assert not server.closed()[0].graceful


@pytest.mark.parametrize(("offset", "size"), [(1 << 63, 5), ((16 << 20) - 4, 5), (0, 17 << 20)])
def test_places_outside_a_segment_close_the_link(sides, offset: int, size: int) -> None:
    server, _, link = sides
    link.send(Frame(head(MIB), [bytes(MIB)]))
    notice = SHARED.pack(9, 0, 0, offset, size) + head(size)
    link._sender.send_own(transport_head(TransportKind.SHARED, notice))
    server.until(lambda: bool(server.closed()))
    assert "outside segment 0" in server.closed()[0].reason
