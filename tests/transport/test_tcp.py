"""Strangers, scanners and broken peers at a listening transport, while a real link goes on."""

import logging
import os
import random
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bireme.errors import AuthError, ConfigError, PeerLost
from bireme.transport.auth import Credentials, Handshake
from bireme.transport.base import Arrived, Closed, Frame, LinkEvent, Opened, TransportOptions
from bireme.transport.framing import TransportKind, transport_head, write_credit
from bireme.transport.greeting import Greeting
from bireme.transport.link import SocketLink
from bireme.transport.pacing import Pacing
from bireme.transport.seal import Seal
from bireme.transport.tcp import SocketTransport
from bireme.wire.header import write_header
from bireme.wire.limits import Limits

SECRET = b"the job's secret"
LIMIT_S = 20.0
TCP = "tcp://127.0.0.1:0"


def options(**changes: object) -> TransportOptions:
    return TransportOptions(**{"secret": SECRET, "job": "job", **changes})  # type: ignore[arg-type]


class Server:
    """A transport that echoes, polled by a thread of its own."""

    def __init__(self, transport: SocketTransport, address: str) -> None:
        self.transport = transport
        self.address = transport.listen(address)
        self.events: list[LinkEvent] = []
        self.stopped = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped:
            for event in self.transport.poll(None):
                self.events.append(event)
                if isinstance(event, Arrived):
                    answer = Frame(event.frame.head, [event.frame.payload])
                    # The link may have closed behind this frame.
                    with suppress(PeerLost):
                        event.link.send(answer, 0, event.frame.release)

    def closed(self) -> list[Closed]:
        return [event for event in self.events if isinstance(event, Closed)]

    def wait_closed(self, count: int) -> list[Closed]:
        deadline_s = time.monotonic() + LIMIT_S
        while len(self.closed()) < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.002)
        return self.closed()

    def stop(self) -> None:
        self.stopped = True
        self.transport.wake()
        self.thread.join(LIMIT_S)
        self.transport.close()


@contextmanager
def serving(address: str = TCP, **changes: object) -> Iterator[Server]:
    server = Server(SocketTransport(options(**changes)), address)
    try:
        yield server
    finally:
        server.stop()


class Client:
    """A real peer, whose link must go on whatever else happens."""

    def __init__(self, address: str, **changes: object) -> None:
        self.transport = SocketTransport(options(**changes))
        self.link = self.transport.connect(address, LIMIT_S)
        assert [type(event) for event in self.transport.poll(0)] == [Opened]

    def echo(self, payload: bytes = b"x" * 100_000) -> None:
        head = write_header(9, b"body", len(payload)) + b"body"
        self.link.send(Frame(head, [payload]))
        while True:
            for event in self.transport.poll(LIMIT_S):
                assert isinstance(event, Arrived), event
                assert bytes(event.frame.payload) == payload
                event.frame.release()
                return


def raw(address: str) -> socket.socket:
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(LIMIT_S)
    return connection


def proved(address: str) -> tuple[socket.socket, Seal]:
    """A raw connection past its handshake: a peer that holds the secret, and misbehaves."""
    connection = raw(address)
    mine = Credentials(secret=SECRET, job="job", identity={}, window_bytes=1 << 20)
    handshake = Handshake(mine, os.urandom(32), client=True)
    connection.sendall(handshake.begin())
    while handshake.session is None:
        connection.sendall(handshake.feed(connection.recv(4096)))
    return connection, Seal(handshake.session.send_key)


def ends(connection: socket.socket) -> bool:
    """Whether the other side closes the connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    connection.close()
    return True


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


NOISE = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "frames": write_header(1, b"", 0),
    "zeros": bytes(5000),
    "endless": os.urandom(20_000),
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_scanners_disturb_nobody_and_leave_nothing(
    noise: bytes, quiet: pytest.LogCaptureFixture
) -> None:
    with serving() as server:
        client = Client(server.address)
        client.echo()
        num_files = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            connection = raw(server.address)
            try:
                connection.sendall(noise)
                if noise:
                    assert ends(connection)
            except (ConnectionResetError, BrokenPipeError):
                pass
            connection.close()
        client.echo()
        deadline_s = time.monotonic() + LIMIT_S
        while len(os.listdir("/proc/self/fd")) > num_files:
            assert time.monotonic() < deadline_s
            time.sleep(0.002)
        assert server.closed() == []
        assert len(quiet.records) == 10
        assert all("refused a connection" in record.message for record in quiet.records)
        client.transport.close()


def test_a_wrong_secret_is_refused_on_both_sides(quiet: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        client = Client(server.address)
        for change in ({"secret": b"guess"}, {"job": "other"}, {"secret": b""}):
            with SocketTransport(options(**change)) as stranger:
                began_s = time.monotonic()
                with pytest.raises(AuthError):
                    stranger.connect(server.address, LIMIT_S)
                assert time.monotonic() - began_s < 2
        client.echo()
        assert len(quiet.records) == 3
        client.transport.close()


def test_a_server_without_the_secret_is_refused() -> None:
    with (
        serving(secret=b"other") as server,
        SocketTransport(options()) as client,
        pytest.raises(AuthError, match="another secret"),
    ):
        client.connect(server.address, LIMIT_S)


def test_a_replayed_connection_is_refused(quiet: pytest.LogCaptureFixture) -> None:
    """Everything that a real client sent, frames included, played again."""
    with serving() as server:
        recorded = []
        connection = raw(server.address)
        mine = Credentials(secret=SECRET, job="job", identity={}, window_bytes=1 << 20)
        handshake = Handshake(mine, os.urandom(32), client=True)
        recorded.append(handshake.begin())
        connection.sendall(recorded[-1])
        while handshake.session is None:
            recorded.append(handshake.feed(connection.recv(4096)))
            connection.sendall(recorded[-1])
        connection.close()
        server.wait_closed(1)
        replay = raw(server.address)
        replay.sendall(recorded[0])
        replay.recv(4096)
        replay.sendall(recorded[1])
        assert ends(replay)
        assert len([event for event in server.events if isinstance(event, Opened)]) == 1
        assert "another secret" in quiet.records[-1].message


def test_slow_strangers_are_closed_at_the_limit(quiet: pytest.LogCaptureFixture) -> None:
    with serving(handshake_timeout_s=0.1) as server:
        silent, slow = raw(server.address), raw(server.address)
        slow.sendall(b"BRMH")
        began_s = time.monotonic()
        assert ends(silent)
        assert ends(slow)
        assert time.monotonic() - began_s < 2
        assert "no handshake within 0.1 s" in quiet.records[0].message


def test_a_flood_of_strangers_keeps_no_real_peer_out(quiet: pytest.LogCaptureFixture) -> None:
    with serving(max_unproven=4) as server:
        strangers = [raw(server.address) for _ in range(30)]
        client = Client(server.address)
        client.echo()
        assert ends(strangers[0])
        for stranger in strangers[1:]:
            stranger.close()
        client.transport.close()


BROKEN = {
    "noise": b"\xff" * 64,
    "another version": b"BRM1\x02" + bytes(40),
    "flags": b"BRM1\x01\x07\xff\xff" + bytes(40),
    "oversized body": b"BRM1\x01\x07\x00\x00\xff\xff\xff\xff" + bytes(20),
    "oversized payload": write_header(7, b"", 1 << 40),
    "wrong checksum": write_header(7, b"body", 0) + b"bodY",
    "invented credit": write_credit(1),
    "malformed credit": transport_head(TransportKind.CREDIT, b"123"),
    "unknown transport kind": write_header(250, b"", 0),
    "shared memory over tcp": transport_head(TransportKind.SHARED, bytes(64)),
    "behind goodbye": transport_head(TransportKind.BYE, b"") + write_header(7, b"", 0),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_peer_closes_its_own_link_only(broken: bytes) -> None:
    with serving(limits=Limits(max_body_bytes=1 << 20, max_payload_bytes=1 << 30)) as server:
        client = Client(server.address)
        connection, seal = proved(server.address)
        connection.sendall(broken + seal.seal(broken))
        assert ends(connection)
        (closed,) = server.wait_closed(1)
        assert closed.reason
        client.echo()
        client.transport.close()


def test_a_forged_or_repeated_head_closes_the_link() -> None:
    head = write_header(7, b"", 0)
    with serving() as server:
        connection, _ = proved(server.address)
        connection.sendall(head + bytes(16))
        assert ends(connection)
        connection, seal = proved(server.address)
        sealed = head + seal.seal(head)
        connection.sendall(sealed + sealed)
        assert ends(connection)
        closed = server.wait_closed(2)
        assert all("wrong seal" in event.reason for event in closed)
        assert len([event for event in server.events if isinstance(event, Arrived)]) == 1


def test_a_truncated_frame_is_said_to_be_one() -> None:
    with serving() as server:
        connection, seal = proved(server.address)
        head = write_header(7, b"", 100_000)
        connection.sendall(head + seal.seal(head) + bytes(99_999))
        connection.close()
        (closed,) = server.wait_closed(1)
        assert "middle of a frame" in closed.reason
        assert not closed.graceful


def test_random_bytes_from_proved_peers_never_break_the_server() -> None:
    chance = random.Random(5)
    with serving() as server:
        client = Client(server.address)
        for number in range(60):
            connection, seal = proved(server.address)
            head = bytearray(write_header(7, b"body", 1000) + b"body")
            for _ in range(chance.randrange(4)):
                head[chance.randrange(len(head))] = chance.randrange(256)
            data = bytes(head) + seal.seal(bytes(head)) + chance.randbytes(chance.randrange(1200))
            connection.sendall(data)
            connection.close()
            server.wait_closed(number + 1)
        client.echo()
        assert server.thread.is_alive()
        client.transport.close()


def test_only_loopback_without_a_secret() -> None:
    with SocketTransport(TransportOptions()) as transport:
        for address in ("tcp://0.0.0.0:0", "tcp://[::]:0"):
            with pytest.raises(ConfigError, match="no secret"):
                transport.listen(address)
        assert transport.listen("tcp://:0").startswith("tcp://127.0.0.1:")
    with SocketTransport(TransportOptions(is_open=True)) as transport:
        assert transport.listen("tcp://0.0.0.0:0")
    with SocketTransport(options()) as transport:
        transport.listen("tcp://0.0.0.0:0")


@pytest.mark.parametrize(
    "address", ["http://a", "tcp://a", "tcp://a:70000", "unix://relative", "inproc://a", ""]
)
def test_malformed_addresses_are_refused(address: str) -> None:
    with SocketTransport() as transport:
        with pytest.raises(ConfigError):
            transport.listen(address)
        with pytest.raises(ConfigError):
            transport.connect(address, 1)


def test_a_taken_port_is_refused() -> None:
    with SocketTransport() as one, SocketTransport() as other:
        address = one.listen(TCP)
        with pytest.raises(ConfigError, match=address):
            other.listen(address)


def test_another_service_at_the_address_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service, SocketTransport() as client:

        def serve() -> None:
            connection, _ = service.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PeerLost, match="no node of a job"):
            client.connect(f"tcp://127.0.0.1:{service.getsockname()[1]}", LIMIT_S)
        thread.join()


def test_a_payload_with_a_wrong_checksum_closes_the_link() -> None:
    with serving() as server:
        connection, seal = proved(server.address)
        head = write_header(7, b"", 4, payload_crc=123)
        connection.sendall(head + seal.seal(head) + b"data")
        assert ends(connection)
        assert "checksum" in server.wait_closed(1)[0].reason


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


def test_tls(certificate: tuple[Path, Path], quiet: pytest.LogCaptureFixture) -> None:
    key, cert = certificate
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(cert, key)
    client_context = ssl.create_default_context(cafile=str(cert))
    with serving(tls_server=server_context) as server:
        client = Client(server.address, tls_client=client_context)
        for size_bytes in (0, 1, 20_000, 3_000_000):
            client.echo(b"p" * size_bytes)
        with SocketTransport(options()) as plain, pytest.raises(PeerLost):
            plain.connect(server.address, 0.5)
        stranger = SocketTransport(options(tls_client=ssl.create_default_context()))
        with stranger, pytest.raises(PeerLost, match="certificate"):
            stranger.connect(server.address, 2.0)
        client.echo()
        client.transport.close()
        assert server.wait_closed(1)[0].graceful


def test_a_socket_that_listens_already_is_adopted() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    with serving() as server:
        address = server.transport.adopt(listener)
        assert not listener.get_inheritable()
        client = Client(address)
        client.echo()
        client.transport.close()
    assert listener.fileno() == -1


def test_an_open_socket_is_not_adopted_without_a_secret() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, SocketTransport() as transport:
        with pytest.raises(ConfigError, match="no secret"):
            transport.adopt(listener)


def test_a_machine_out_of_descriptors_accepts_again_later(
    monkeypatch: pytest.MonkeyPatch, quiet: pytest.LogCaptureFixture
) -> None:
    accept = socket.socket.accept
    failures = [OSError(24, "Too many open files")]

    def sometimes(self: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", sometimes)
    with serving() as server:
        client = Client(server.address)
        client.echo()
        assert "cannot accept" in quiet.records[0].message
        client.transport.close()


def test_a_name_with_a_dead_endpoint_is_reached_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as server:
        port = int(server.address.rsplit(":", 1)[1])
        alive = (socket.AF_INET, ("127.0.0.1", port))
        dead = (socket.AF_INET, ("127.0.0.1", 1))
        monkeypatch.setattr("bireme.transport.tcp.resolve", lambda address: [dead, alive])
        client = Client(f"tcp://somewhere:{port}")
        client.echo()
        client.transport.close()


def test_an_unknown_host_is_named() -> None:
    with SocketTransport() as client, pytest.raises(PeerLost, match=r"no-such-host\.invalid"):
        client.connect("tcp://no-such-host.invalid:80", 0.05)


@pytest.mark.parametrize("when", ["before", "in the handshake", "after"])
def test_every_connection_hears_of_the_links_speed(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = SocketTransport(options())
    slow = Pacing(50e6 / 8)
    if when == "before":
        transport.pace(slow)
    elif when == "in the handshake":
        advance = Greeting.advance

        def pace_first(greeting: Greeting) -> object:
            transport.pace(slow)
            return advance(greeting)

        monkeypatch.setattr(Greeting, "advance", pace_first)
    with transport, SocketTransport(options()) as client:
        address, opened = transport.listen(TCP), list[LinkEvent]()
        thread = threading.Thread(target=lambda: opened.extend(transport.poll(LIMIT_S)))
        thread.start()
        client.connect(address, LIMIT_S)
        thread.join()
        if when == "after":
            transport.pace(slow)
        link = opened[0].link
        assert isinstance(link, SocketLink)
        with socket.socket(fileno=os.dup(link.stream.fileno())) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 1 << 18
