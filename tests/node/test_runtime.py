import contextlib
import threading
import time

import pytest

from bireme.core import actions as act
from bireme.core import events as ev
from bireme.node.memory import Held
from bireme.node.runtime import Runtime
from bireme.node.sheets import Sheets
from bireme.transport.base import Closed, Frame, ReceivedFrame, TransportOptions
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.transport.pacing import Pacing
from bireme.transport.pool import BufferPool, PooledBuffer
from bireme.transport.tcp import SocketTransport
from bireme.types.nodes import SCHEDULER
from bireme.wire.codec import encode
from bireme.wire.header import write_header
from bireme.wire.messages import CommandDone, Heartbeat, Leave, Ping
from bireme.wire.probe import MOST_PING_BYTES

ADDRESS = "inproc://scheduler"


class Script:
    """A core that notes its events and does what it was told to do for each kind."""

    def __init__(self, first=()) -> None:
        self.first = list(first)
        self.events: list = []
        self.replies: dict[type, object] = {}
        self.due_s: float | None = None

    def start(self, now_s: float) -> list[act.Action]:
        return self.first

    def handle(self, event, now_s: float) -> list[act.Action]:
        self.events.append(event)
        reply = self.replies.get(type(event))
        return reply(event) if reply else []

    def next_deadline_s(self) -> float | None:
        return self.due_s

    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


class Side:
    """A scripted role over a transport."""

    def __init__(self, transport, *first, scheduler: str = ADDRESS) -> None:
        self.core = Script(first)
        self.transport = transport
        self.hub: InprocHub | None = None
        self.runtime = Runtime(self.core, transport, scheduler=scheduler, name="test")

    def tick(self) -> None:
        """Let a deadline pass. Right after an event it may be looked at a moment later."""
        before = self.core.kinds().count(ev.Tick)
        self.core.due_s = 0.0
        while self.core.kinds().count(ev.Tick) == before:
            self.runtime.step()
        self.core.due_s = None

    def until(self, kind: type, other: "Side | None" = None) -> object:
        limit_s = time.monotonic() + 10
        while kind not in self.core.kinds():
            assert time.monotonic() < limit_s, f"no {kind.__name__} in {self.core.events}"
            for side in filter(None, (other, self)):
                side.runtime.wake()
                side.runtime.step()
        return next(event for event in self.core.events if type(event) is kind)


@pytest.fixture
def pair():
    """A client that has connected to a server, both scripted."""
    hub = InprocHub()
    with InprocTransport(hub) as there, InprocTransport(hub) as here:
        there.listen(ADDRESS)
        server, client = Side(there), Side(here, act.Connect(SCHEDULER, ()))
        client.runtime.start()
        client.until(ev.Linked, server)
        client.hub = hub
        yield client, server


def send(client: Side, message, *pieces) -> None:
    link = next(event.link for event in client.core.events if type(event) is ev.Linked)
    client.core.replies[ev.Tick] = lambda _: [act.Send(link, message, pieces)]
    client.tick()


def test_a_message_travels_and_its_payload_is_released(pair):
    client, server = pair
    seen = []
    server.core.replies[ev.Received] = lambda event: seen.append(bytes(event.payload.payload)) or []
    freed = []
    piece = Held(memoryview(bytearray(b"abc")), lambda: freed.append(1))
    send(client, CommandDone(1, {}, 3), piece)
    assert piece.shared
    received = server.until(ev.Received, client)
    assert received.message == CommandDone(1, {}, 3)
    assert seen == [b"abc"]
    assert not piece.shared
    piece.release()
    assert freed == [1]
    assert client.runtime.num_messages == server.runtime.num_messages == 1


def test_a_held_payload_stays_until_it_is_released(pair):
    client, server = pair
    server.core.replies[ev.Received] = lambda event: [act.Hold(event.payload)]
    piece = Held(memoryview(bytearray(b"abc")))
    send(client, CommandDone(1, {}, 3), piece)
    received = server.until(ev.Received, client)
    assert piece.shared
    assert isinstance(received.payload, ReceivedFrame)
    server.core.replies[ev.Tick] = lambda _: [act.Release(received.payload)]
    server.tick()
    assert not piece.shared


def test_neighbours_leave_as_one_piece(pair, monkeypatch):
    client, server = pair
    pool = BufferPool(1 << 20)
    sheets = Sheets(lambda size_bytes: PooledBuffer(pool, size_bytes))
    pieces = [sheets.part("message", 6, at, 2) for at in (0, 2, 4)]
    for number, piece in enumerate(pieces):
        piece.view[:] = bytes([number, number])
    seen = []
    server.core.replies[ev.Received] = lambda event: seen.append(bytes(event.payload.payload)) or []
    send(client, CommandDone(1, {}, 6), *pieces)
    server.until(ev.Received, client)
    assert seen == [b"\0\0\1\1\2\2"]
    assert not any(piece.shared for piece in pieces)


def test_a_message_to_a_link_that_is_gone_frees_its_payload(pair):
    client, server = pair
    server.transport.close()
    client.until(ev.Lost)
    piece = Held(memoryview(bytearray(b"abc")))
    send(client, CommandDone(1, {}, 3), piece)
    assert not piece.shared


@pytest.mark.parametrize(
    "head",
    [
        write_header(200, b"", 0),
        write_header(encode(Heartbeat(1.0, 1))[5], b"\xc1\xc1", 0) + b"\xc1\xc1",
    ],
)
def test_what_is_no_message_ends_the_link_and_nothing_else(pair, head):
    client, server = pair
    with InprocTransport(client.hub) as stranger:
        link = stranger.connect(ADDRESS, 5)
        link.send(Frame(head))
        limit_s = time.monotonic() + 10
        found: list = []
        while not any(isinstance(event, Closed) for event in found):
            assert time.monotonic() < limit_s
            server.runtime.wake()
            server.runtime.step()
            found += stranger.poll(0)
    assert ev.Received not in server.core.kinds()
    send(client, Leave())
    assert server.until(ev.Received, client).message == Leave()


def test_a_connection_that_cannot_be_made(monkeypatch):
    monkeypatch.setattr("bireme.node.connecting._CONNECT_LIMIT_S", 0.05)
    with InprocTransport(InprocHub()) as here:
        client = Side(here, act.Connect(SCHEDULER, ()))
        client.runtime.start()
        failed = client.until(ev.ConnectFailed)
    assert failed.node == SCHEDULER
    assert ADDRESS in failed.reason


def test_a_refused_secret_ends_the_node():
    with (
        SocketTransport(TransportOptions(secret=b"one")) as there,
        SocketTransport(TransportOptions(secret=b"another")) as here,
    ):
        address = there.listen("tcp://127.0.0.1:0")
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                there.poll(0.05)

        thread = threading.Thread(target=serve)
        thread.start()
        client = Side(here, act.Connect(SCHEDULER, ()), scheduler=address)
        with contextlib.ExitStack() as stack:
            stack.callback(thread.join)
            stack.callback(stop.set)
            ended = client.runtime.run()
    assert ended.exit_code == 3
    assert "secret" in ended.text


def test_a_tick_comes_when_it_is_due_and_not_before():
    with InprocTransport(InprocHub()) as here:
        side = Side(here)
        side.core.replies[ev.Tick] = lambda _: [act.EndJob(7, "over")]
        side.core.due_s = time.monotonic() + 0.05
        ended = side.runtime.run()
        assert time.monotonic() >= side.core.due_s
    assert ended == act.EndJob(7, "over")
    assert side.core.kinds() == [ev.Tick]


def test_nothing_is_handled_after_the_end(pair):
    client, server = pair
    server.core.replies[ev.Received] = lambda _: [act.EndJob(0, "over")]
    one, two = (Held(memoryview(bytearray(b"abc"))) for _ in range(2))
    send(client, CommandDone(1, {}, 3), one)
    send(client, CommandDone(2, {}, 3), two)
    server.until(ev.Received, client)
    server.runtime.wake()
    server.runtime.step()
    client.runtime.wake()
    client.runtime.step()
    assert server.core.kinds().count(ev.Received) == 1
    assert not one.shared
    assert not two.shared


def test_a_closed_link_is_not_reported(pair):
    client, _ = pair
    link = client.core.events[0].link
    client.core.replies[ev.Tick] = lambda _: [act.Close(link)]
    client.core.due_s = 0.0
    client.runtime.step()
    client.core.due_s = None
    client.runtime.wake()
    client.runtime.step()
    assert ev.Lost not in client.core.kinds()


def test_the_log_names_the_node(caplog):
    with InprocTransport(InprocHub()) as here, caplog.at_level("WARNING", "bireme.node"):
        Side(here, act.Log("warning", "slow")).runtime.start()
    assert caplog.messages == ["test slow"]


def test_a_link_is_filled_with_as_many_bytes_as_the_message_says(pair):
    client, server = pair
    link = next(event.link for event in client.core.events if type(event) is ev.Linked)
    sizes = []
    server.core.replies[ev.Received] = lambda event: sizes.append(len(event.payload.payload)) or []
    client.core.replies[ev.Tick] = lambda _: [
        act.Fill(link, Ping(1, MOST_PING_BYTES)),
        act.Fill(99, Ping(2, 8)),
    ]
    client.tick()
    assert server.until(ev.Received, client).message == Ping(1, MOST_PING_BYTES)
    assert sizes == [MOST_PING_BYTES]


def test_the_speed_of_the_link_reaches_the_transport_and_whoever_asked(pair, monkeypatch):
    client, _ = pair
    told = []
    monkeypatch.setattr(InprocTransport, "pace", lambda _self, speed: told.append(speed))
    client.runtime.paced = told.append
    client.core.replies[ev.Tick] = lambda _: [act.Pace(1e6, 2e6, gives_way=True)]
    client.tick()
    assert told == [Pacing(1e6, 2e6, gives_way=True)] * 2
