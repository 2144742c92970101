"""A connection on its way to a link, step by step."""

import socket
from collections.abc import Iterator

import pytest

from bireme.errors import AuthError, PeerLost, RemoteProtocolError
from bireme.transport.auth import Credentials, Session
from bireme.transport.greeting import Greeting


def credentials(secret: bytes = b"s") -> Credentials:
    return Credentials(secret=secret, job="j", identity={"rank": 1}, window_bytes=10)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    yield one, other
    one.close()
    other.close()


def run(client: Greeting, server: Greeting) -> tuple[Session, Session]:
    sessions: list[Session | None] = [None, None]
    for _ in range(10):
        sessions = [client.advance(), server.advance()]
        if all(sessions):
            return sessions[0], sessions[1]  # type: ignore[return-value]
    raise AssertionError("no end")


@pytest.mark.parametrize("shared", [False, True])
def test_both_sides_get_a_session_and_a_stream(
    ends: tuple[socket.socket, socket.socket], shared: bool
) -> None:
    client = Greeting(ends[0], credentials(), client=True, shared=shared)
    server = Greeting(ends[1], credentials(), client=False, shared=shared)
    assert (client.wants_writing, server.wants_writing) == (True, False)
    here, there = run(client, server)
    assert here.peer == there.peer == {"rank": 1}
    assert not client.wants_writing
    assert client.stream is not None
    assert client.fileno() == ends[0].fileno()
    assert not client.encrypted


def test_a_refusal_reaches_the_other_side(ends: tuple[socket.socket, socket.socket]) -> None:
    client = Greeting(ends[0], credentials(b"guess"), client=True)
    server = Greeting(ends[1], credentials(), client=False)
    with pytest.raises(AuthError):
        run(client, server)
    server.abandon()
    with pytest.raises(AuthError, match="refused this process"):
        client.advance()


def test_a_peer_that_leaves_is_lost(ends: tuple[socket.socket, socket.socket]) -> None:
    server = Greeting(ends[1], credentials(), client=False)
    assert server.advance() is None
    ends[0].close()
    with pytest.raises(PeerLost, match="during the handshake"):
        server.advance()
    server.abandon()


def test_another_protocol_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    server = Greeting(ends[1], credentials(), client=False)
    ends[0].send(b"GET / HTTP/1.0\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        server.advance()
    server.abandon()
