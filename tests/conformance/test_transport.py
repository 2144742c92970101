"""Every transport against the guarantees of `bireme.transport.base`."""

import gc
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bireme.errors import LocalProtocolError, PeerLost, StateError
from bireme.transport.base import (
    CONTROL_PRIORITY,
    Arrived,
    Closed,
    Frame,
    Link,
    LinkEvent,
    Opened,
    ReceivedFrame,
    Transport,
    TransportOptions,
)
from bireme.transport.faulty import Faults, FaultyTransport
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.transport.metered import MeteredTransport
from bireme.transport.tcp import SocketTransport
from bireme.wire.header import write_header

MIB = 1 << 20
LIMIT_S = 20.0

KINDS = ("inproc", "tcp", "tcp-secret", "unix", "shm", "faulty", "metered")
SOCKET_KINDS = KINDS[1:]
ADDRESSES = {
    "inproc": "inproc://server",
    "unix": "unix://",
    "shm": "shm+unix://",
}


def head(payload_bytes: int = 0, number: int = 0, kind: int = 7) -> bytes:
    body = number.to_bytes(8, "little")
    return write_header(kind, body, payload_bytes) + body


def number_of(frame: ReceivedFrame) -> int:
    return int.from_bytes(frame.head[-8:], "little")


def frame_of(payload: bytes | bytearray | memoryview = b"", number: int = 0) -> Frame:
    return Frame(head(len(payload), number), [payload])


class World:
    """Makes transports of one kind that reach each other, and closes them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.hub = InprocHub()
        self.address = ADDRESSES.get(kind, "tcp://127.0.0.1:0")
        self.transports: list[Transport] = []

    def transport(self, **options: object) -> Transport:
        secret = b"s" * 32 if self.kind == "tcp-secret" else b""
        all_options = TransportOptions(**{"secret": secret, "job": "test", **options})  # type: ignore[arg-type]
        made: Transport
        if self.kind == "inproc":
            made = InprocTransport(self.hub, all_options)
        else:
            made = SocketTransport(all_options)
        if self.kind == "faulty":
            made = FaultyTransport(made, Faults(), seed=1)
        if self.kind == "metered":
            made = MeteredTransport(made)
        self.transports.append(made)
        return made

    def close(self) -> None:
        threads = [threading.Thread(target=made.close) for made in self.transports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()


@dataclass
class Poller:
    """Polls a transport, in this thread on demand or in its own, and keeps what happened."""

    transport: Transport
    on_event: Callable[[LinkEvent], None] = lambda event: None
    events: list[LinkEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> "Poller":
        self._stop = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self.transport.wake()
        assert self._thread is not None
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        self._thread = None

    def _run(self) -> None:
        while not self._stop:
            self._take(self.transport.poll(None))

    def _take(self, events: list[LinkEvent]) -> None:
        for event in events:
            self.on_event(event)
        with self._changed:
            self.events += events
            self._changed.notify_all()

    def until(self, ready: Callable[[], bool]) -> None:
        """Go on until ``ready()``, polling unless a thread does."""
        deadline_s = time.monotonic() + LIMIT_S
        while not ready():
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"not within {LIMIT_S} s; last events: {self.events[-3:]}"
            if self._thread is None:
                self._take(self.transport.poll(min(left_s, 0.5)))
            else:
                with self._changed:
                    self._changed.wait(0.05)

    def arrived(self, link: Link | None = None) -> list[ReceivedFrame]:
        return [
            event.frame
            for event in self.events
            if isinstance(event, Arrived) and link in (None, event.link)
        ]

    def opened(self) -> list[Link]:
        return [event.link for event in self.events if isinstance(event, Opened)]

    def closed(self) -> list[Closed]:
        return [event for event in self.events if isinstance(event, Closed)]


@dataclass
class Pair:
    """A server and a client with one link between them, polled by hand."""

    world: World
    server: Poller
    client: Poller
    address: str
    here: Link
    there: Link


def connect(server: Poller, client: Transport, address: str) -> Link:
    """Open a link to a server that nobody else polls."""
    with server:
        return client.connect(address, LIMIT_S)


def pair_of(world: World, *, server: dict[str, object], client: dict[str, object]) -> Pair:
    server_transport = world.transport(identity={"role": "server"}, **server)
    client_transport = world.transport(identity={"role": "worker", "rank": 3}, **client)
    address = server_transport.listen(world.address)
    server_poller, client_poller = Poller(server_transport), Poller(client_transport)
    here = connect(server_poller, client_transport, address)
    server_poller.until(lambda: bool(server_poller.opened()))
    client_poller.until(lambda: bool(client_poller.opened()))
    there = server_poller.opened()[0]
    return Pair(world, server_poller, client_poller, address, here, there)


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


@pytest.fixture(params=SOCKET_KINDS)
def socket_world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


@pytest.fixture
def pair(world: World) -> Pair:
    return pair_of(world, server={}, client={})


def test_each_side_learns_who_the_other_is(pair: Pair) -> None:
    assert pair.here.peer == {"role": "server"}
    assert pair.there.peer == {"role": "worker", "rank": 3}
    assert (pair.here.accepted, pair.there.accepted) == (False, True)
    assert pair.client.opened() == [pair.here]


def test_frames_of_a_priority_arrive_in_order(pair: Pair) -> None:
    for number in range(300):
        pair.here.send(frame_of(bytes(number * 7 % 500), number))
    pair.server.until(lambda: len(pair.server.arrived()) == 300)
    frames = pair.server.arrived(pair.there)
    assert [number_of(frame) for frame in frames] == list(range(300))
    assert [frame.payload.nbytes for frame in frames] == [n * 7 % 500 for n in range(300)]


def test_frames_arrive_in_both_directions_and_heads_are_untouched(pair: Pair) -> None:
    sent = frame_of(b"question", 5)
    pair.here.send(sent)
    pair.there.send(frame_of(b"answer", 6))
    pair.server.until(lambda: bool(pair.server.arrived()))
    pair.client.until(lambda: bool(pair.client.arrived()))
    assert pair.server.arrived()[0].head == sent.head
    assert bytes(pair.server.arrived()[0].payload) == b"question"
    assert bytes(pair.client.arrived()[0].payload) == b"answer"


def test_higher_priorities_overtake_what_waits(world: World) -> None:
    pair = pair_of(world, server={"window_bytes": 100_000}, client={})
    for number in range(4):
        pair.here.send(frame_of(bytes(50_000), number), priority=0)
    pair.here.send(frame_of(bytes(50_000), 10), priority=5)
    pair.here.send(frame_of(bytes(50_000), 11), priority=5)
    pair.here.send(frame_of(b"", 20), priority=CONTROL_PRIORITY)
    pair.server.on_event = lambda event: (
        event.frame.release() if isinstance(event, Arrived) else None
    )
    _drive(pair, lambda: len(pair.server.arrived()) == 7)
    assert [number_of(frame) for frame in pair.server.arrived()] == [0, 1, 20, 10, 11, 2, 3]


def _drive(pair: Pair, ready: Callable[[], bool]) -> None:
    """Poll both sides in turn until ``ready()``."""
    deadline_s = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < deadline_s
        pair.client._take(pair.client.transport.poll(0.005))
        pair.server._take(pair.server.transport.poll(0.005))


def _release(event: LinkEvent) -> None:
    if isinstance(event, Arrived):
        event.frame.release()


@pytest.mark.parametrize("piece_bytes", [MIB, 300_001])
def test_a_hundred_megabytes_arrive_intact_both_ways_at_once(
    world: World, piece_bytes: int
) -> None:
    pair = pair_of(world, server={"window_bytes": 4 * MIB}, client={"window_bytes": 4 * MIB})
    num_frames = 50 * MIB // piece_bytes
    source = os.urandom(piece_bytes + num_frames)
    view = memoryview(source)
    checks: dict[str, list[int]] = {"server": [], "client": []}

    def check(name: str) -> Callable[[LinkEvent], None]:
        def take(event: LinkEvent) -> None:
            if isinstance(event, Arrived):
                checks[name].append(zlib.crc32(event.frame.payload))
                event.frame.release()

        return take

    pair.server.on_event, pair.client.on_event = check("server"), check("client")
    with pair.server, pair.client:
        for number in range(num_frames):
            piece = view[number : number + piece_bytes]
            pair.here.send(Frame(head(piece_bytes, number), [piece[:1000], piece[1000:]]))
            pair.there.send(Frame(head(piece_bytes, number), [piece]))
        for poller in (pair.server, pair.client):
            poller.until(lambda poller=poller: len(poller.arrived()) == num_frames)  # type: ignore[misc]
    expected = [zlib.crc32(view[n : n + piece_bytes]) for n in range(num_frames)]
    assert checks == {"server": expected, "client": expected}


def test_a_sink_names_where_payloads_go(pair: Pair) -> None:
    target = bytearray(200_000)
    asked = []

    def sink(link: Link, frame_head: bytes, payload_bytes: int) -> memoryview | None:
        asked.append((link, payload_bytes))
        return memoryview(target) if payload_bytes == len(target) else None

    pair.server.transport.sink = sink
    source = os.urandom(len(target))
    pair.here.send(frame_of(source, 1))
    pair.here.send(frame_of(b"other", 2))
    pair.here.send(frame_of(b"", 3))
    pair.server.until(lambda: len(pair.server.arrived()) == 3)
    # What has come with its head may lie where it is.
    assert asked in ([(pair.there, len(target))], [(pair.there, len(target)), (pair.there, 5)])
    assert target == source
    first, second, _ = pair.server.arrived()
    assert first.payload.obj is target
    assert bytes(second.payload) == b"other"


def test_payloads_are_kept_where_nobody_else_sees_them(pair: Pair) -> None:
    source = os.urandom(200_000)
    pair.here.send(frame_of(source, 1))
    pair.server.until(lambda: bool(pair.server.arrived()))
    (frame,) = pair.server.arrived()
    kept = frame.adopt()
    if kept is None:
        assert bytes(frame.payload) == source
    else:
        assert pair.there.statistics().unreleased_bytes == 0
        frame.release()
        pair.here.send(frame_of(bytes(200_000), 2))
        pair.server.until(lambda: len(pair.server.arrived()) == 2)
        assert bytes(kept.view) == source
        kept.view[:4] = b"mine"
        kept.release()


def test_credit_bounds_what_the_receiver_holds(world: World) -> None:
    pair = pair_of(world, server={"window_bytes": MIB}, client={})
    for number in range(100):
        pair.here.send(frame_of(bytes(100_000), number))
    deadline_s = time.monotonic() + 0.2
    _drive(pair, lambda: time.monotonic() > deadline_s)
    held = pair.there.statistics()
    assert held.unreleased_bytes == 1_000_000
    assert pair.here.statistics().queued_frames == 90
    assert pair.here.statistics().outstanding_bytes == 1_000_000
    most_bytes = [0]

    def release(event: LinkEvent) -> None:
        if isinstance(event, Arrived):
            most_bytes[0] = max(most_bytes[0], pair.there.statistics().unreleased_bytes)
            event.frame.release()

    for frame in pair.server.arrived():
        frame.release()
    pair.server.on_event = release
    _drive(pair, lambda: len(pair.server.arrived()) == 100)
    assert 0 < most_bytes[0] <= MIB
    assert pair.there.statistics().unreleased_bytes == 0


@pytest.mark.parametrize("size_bytes", [790_000, 3 * MIB])
def test_a_payload_near_or_above_the_window_still_arrives(world: World, size_bytes: int) -> None:
    pair = pair_of(world, server={"window_bytes": MIB}, client={})
    pair.server.on_event = _release
    for number in range(20):
        pair.here.send(frame_of(bytes(size_bytes if number % 2 else 70_000), number))
    _drive(pair, lambda: len(pair.server.arrived()) == 20)


def test_on_sent_comes_once_for_each_frame(pair: Pair) -> None:
    sent: list[int] = []
    pair.server.on_event = _release
    for number in range(50):
        size_bytes = 0 if number % 3 == 0 else number * 10_000
        pair.here.send(frame_of(bytes(size_bytes), number), 0, lambda n=number: sent.append(n))  # type: ignore[misc]
    _drive(pair, lambda: len(sent) >= 50)
    assert sorted(sent) == list(range(50))


def test_on_sent_comes_for_frames_that_are_dropped(world: World) -> None:
    pair = pair_of(world, server={"window_bytes": 1000}, client={})
    sent: list[int] = []
    for number in range(10):
        pair.here.send(frame_of(bytes(600), number), 0, lambda n=number: sent.append(n))  # type: ignore[misc]
    pair.here.abort("the test ends it")
    pair.client.until(lambda: bool(pair.client.closed()))
    pair.server.until(lambda: bool(pair.server.closed()))
    for frame in pair.server.arrived():
        frame.release()
    assert sorted(sent) == list(range(10))
    assert pair.client.closed()[0].reason == "the test ends it"
    assert not pair.server.closed()[0].graceful


def test_allocated_memory_goes_to_several_peers(world: World) -> None:
    server_transport = world.transport()
    address = server_transport.listen(world.address)
    server = Poller(server_transport)
    clients = [Poller(world.transport()) for _ in range(3)]
    for client in clients:
        connect(server, client.transport, address)
    server.until(lambda: len(server.opened()) == 3)
    for turn in range(30):
        buffer = server_transport.allocate(200_000)
        buffer.view[:] = bytes([turn]) * 200_000
        frame = Frame(head(200_000, turn), [buffer.view])
        for link in server.opened():
            link.send(frame)
        buffer.release()
        del buffer, frame
        for client in clients:
            count = turn + 1
            client.until(lambda c=client, n=count: len(c.arrived()) == n)  # type: ignore[misc]
            assert bytes(client.arrived()[-1].payload) == bytes([turn]) * 200_000
            client.arrived()[-1].release()


def test_many_links(world: World) -> None:
    server_transport = world.transport()
    address = server_transport.listen(world.address)
    server = Poller(server_transport, _echo)
    client = Poller(world.transport())
    with server:
        links = [client.transport.connect(address, LIMIT_S) for _ in range(20)]
        for number, link in enumerate(links):
            link.send(frame_of(bytes([number]) * 40_000, number))
        client.until(lambda: len(client.arrived()) == 20)
    for number, link in enumerate(links):
        (frame,) = client.arrived(link)
        assert bytes(frame.payload) == bytes([number]) * 40_000


def _echo(event: LinkEvent) -> None:
    if isinstance(event, Arrived):
        answer = Frame(event.frame.head, [event.frame.payload])
        event.link.send(answer, 0, event.frame.release)


def test_four_threads_send_at_once(pair: Pair) -> None:
    sizes = [0, 10, 1_000, 50_000, 200_000]
    pair.server.on_event = _release

    def send(thread_number: int) -> None:
        for number in range(60):
            size_bytes = sizes[(number + thread_number) % len(sizes)]
            pair.here.send(frame_of(bytes(size_bytes), thread_number * 1000 + number))

    with pair.server, pair.client:
        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        pair.server.until(lambda: len(pair.server.arrived()) == 240)
    numbers = [number_of(frame) for frame in pair.server.arrived()]
    for thread_number in range(4):
        mine = [n % 1000 for n in numbers if n // 1000 == thread_number]
        assert mine == list(range(60))


@pytest.mark.parametrize("closer", ["client", "server"])
def test_a_graceful_close_delivers_what_is_queued_first(world: World, closer: str) -> None:
    pair = pair_of(world, server={"window_bytes": 300_000}, client={"window_bytes": 300_000})
    sides = {"client": (pair.client, pair.here), "server": (pair.server, pair.there)}
    closing, link = sides.pop(closer)
    ((other, other_link),) = sides.values()
    other.on_event = _release
    for number in range(20):
        link.send(frame_of(bytes(100_000), number))
    link.close()
    link.close()
    with pytest.raises(PeerLost):
        link.send(frame_of())
    _drive(pair, lambda: bool(closing.closed()) and bool(other.closed()))
    assert [number_of(frame) for frame in other.arrived(other_link)] == list(range(20))
    assert isinstance(other.events[-1], Closed)
    for poller, its_link in ((closing, link), (other, other_link)):
        poller._take(poller.transport.poll(0.01))
        (closed,) = poller.closed()
        assert closed.link is its_link
        assert closed.graceful
    with pytest.raises(PeerLost):
        other_link.send(frame_of())


def test_a_closed_transport_closes_its_links_and_can_do_nothing_more(pair: Pair) -> None:
    pair.here.send(frame_of(b"last", 1))
    pair.client.transport.close()
    pair.client.transport.close()
    pair.server.until(lambda: bool(pair.server.closed()))
    assert [bytes(frame.payload) for frame in pair.server.arrived()] == [b"last"]
    with pytest.raises(PeerLost):
        pair.here.send(frame_of())
    with pytest.raises(StateError):
        pair.client.transport.connect(pair.address, 1)
    with pytest.raises(StateError):
        pair.client.transport.listen(pair.world.address)
    with pytest.raises(StateError):
        pair.client.transport.poll(0)


def test_frames_may_be_released_twice_and_after_everything_closed(pair: Pair) -> None:
    pair.here.send(frame_of(bytes(100_000), 1))
    pair.here.send(frame_of(bytes(100_000), 2))
    pair.server.until(lambda: len(pair.server.arrived()) == 2)
    first, second = pair.server.arrived()
    first.release()
    first.release()
    pair.client.transport.close()
    pair.server.transport.close()
    assert bytes(second.payload[:4]) == bytes(4)
    second.release()
    assert pair.there.statistics().unreleased_bytes == 0


def test_frames_that_are_none_are_refused_at_once(pair: Pair) -> None:
    for frame in (
        Frame(head(5), [b"four"]),
        Frame(head(5)),
        Frame(b"no head"),
        Frame(head()[:-1]),
        Frame(head(kind=240)),
        Frame(b"\0" * 40),
    ):
        with pytest.raises(LocalProtocolError):
            pair.here.send(frame)
    pair.here.send(frame_of(b"fine"))
    pair.server.until(lambda: bool(pair.server.arrived()))


def test_wake_ends_a_poll(world: World) -> None:
    transport = world.transport()
    transport.wake()
    assert transport.poll(None) == []
    thread = threading.Thread(target=transport.poll, args=(None,))
    thread.start()
    transport.wake()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_poll_returns_at_its_limit(world: World) -> None:
    transport = world.transport()
    began_s = time.monotonic()
    assert transport.poll(0.05) == []
    assert 0.045 <= time.monotonic() - began_s < 2


def test_connect_names_the_address_when_nobody_answers(world: World) -> None:
    address = {"inproc": "inproc://nobody", "unix": "unix://@bireme-nobody"}.get(
        world.kind, "tcp://127.0.0.1:1"
    )
    began_s = time.monotonic()
    with pytest.raises(PeerLost, match=address.replace("/", ".")):
        world.transport().connect(address, 0.2)
    assert time.monotonic() - began_s < 2


def test_connect_waits_for_a_server_that_starts_later(world: World) -> None:
    first = world.transport()
    address = first.listen(world.address)
    first.close()
    client = world.transport()
    links: list[Link] = []
    thread = threading.Thread(target=lambda: links.append(client.connect(address, LIMIT_S)))
    thread.start()
    server = Poller(world.transport())
    server.transport.listen(address)
    server.until(lambda: bool(server.opened()))
    thread.join(LIMIT_S)
    assert len(links) == 1


def test_two_transports_connect_to_each_other_at_once(world: World) -> None:
    transports = [world.transport(), world.transport()]
    address = world.address
    addresses = [
        transport.listen(address if world.kind != "inproc" else f"{address}{number}")
        for number, transport in enumerate(transports)
    ]
    links: list[Link] = []
    threads = [
        threading.Thread(
            target=lambda n=n: links.append(transports[n].connect(addresses[1 - n], LIMIT_S))  # type: ignore[misc]
        )
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    pollers = [Poller(transport) for transport in transports]
    while not all(len(poller.opened()) == 2 for poller in pollers):
        for poller in pollers:
            poller._take(poller.transport.poll(0.005))
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(links) == 2


CHILD = """
import sys
from bireme.transport.base import Frame, TransportOptions
from bireme.transport.tcp import SocketTransport
from bireme.wire.header import write_header

secret = b"s" * 32 if sys.argv[2] == "tcp-secret" else b""
transport = SocketTransport(TransportOptions(secret=secret, job="test"))
link = transport.connect(sys.argv[1], 20)
for _ in range(64):
    link.send(Frame(write_header(7, b"", 1 << 20), [bytes(1 << 20)]))
while True:
    transport.poll(None)
"""


def test_a_killed_peer_is_noticed_at_once(socket_world: World) -> None:
    server = Poller(socket_world.transport())
    address = server.transport.listen(socket_world.address)
    with subprocess.Popen([sys.executable, "-c", CHILD, address, socket_world.kind]) as child:
        try:
            server.until(lambda: len(server.arrived()) > 3)
        finally:
            child.kill()
        killed_s = time.monotonic()
        server.until(lambda: bool(server.closed()))
        assert time.monotonic() - killed_s < 1
    (closed,) = server.closed()
    assert not closed.graceful
    assert "vanished" in closed.reason or "reset" in closed.reason
    # What had arrived can still be read.
    assert all(not any(frame.payload[::4096]) for frame in server.arrived())
    for frame in server.arrived():
        frame.release()


def _traces() -> tuple[int, int, set[str], set[str]]:
    """Open files, threads, and files where sockets and shared memory could stay."""
    gc.collect()
    return (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        {name for name in os.listdir("/dev/shm") if "bireme" in name},
        {path.name for path in Path("/tmp").glob("bireme-*")},
    )


def test_closing_leaves_nothing_behind(socket_world: World) -> None:
    before = _traces()
    for _ in range(3):
        world = World(socket_world.kind)
        pair = pair_of(world, server={}, client={})
        pair.here.send(frame_of(bytes(MIB)))
        pair.server.until(lambda pair=pair: bool(pair.server.arrived()))  # type: ignore[misc]
        pair.there.send(frame_of(bytes(MIB)))
        world.close()
        # Segments stay mapped until the frames that show them are gone.
        del pair, world
    assert _traces() == before
