"""Both ends of one handshake, in one loop, over real sockets."""

import socket
import time
from types import SimpleNamespace

import pytest

from bireme.errors import AuthError, PeerLost
from bireme.transport.address import parse_address
from bireme.transport.auth import Credentials
from bireme.transport.base import TransportOptions
from bireme.transport.doors import Attempt, Doors
from bireme.transport.endpoints import bind, resolve
from bireme.transport.loop import Loop

LIMIT_S = 20.0


class Side:
    """One process's doors, and the links that it was asked to make."""

    def __init__(self, loop, secret=b"the job's secret", **options):
        self.options = TransportOptions(secret=secret, job="job", **options)
        credentials = Credentials(
            secret=secret, job="job", identity={}, window_bytes=self.options.window_bytes
        )
        self.doors = Doors(loop, credentials, self.options, self.open_link)
        self.opened = []

    def open_link(self, greeting, session, address, remote, accepted):
        link = SimpleNamespace(accepted=accepted, reasons=[], stream=greeting.stream)
        link.abort = link.reasons.append
        self.opened.append(link)
        return link

    def listen(self):
        listener, bound, clean = bind(parse_address("tcp://127.0.0.1:0"), loopback_only=True)
        self.doors.listen(listener, bound, clean)
        return bound

    def begin(self, address, attempt=None):
        attempt = attempt or Attempt()
        endpoint = resolve(address)[0]
        self.doors.open(attempt, endpoint, address, str(address), time.monotonic() + LIMIT_S)
        return attempt

    def close(self):
        self.doors.close()
        for link in self.opened:
            link.stream.close()


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def side_of(loop):
    sides = []

    def made(**options):
        sides.append(Side(loop, **options))
        return sides[-1]

    yield made
    for side in sides:
        side.close()


def step_until(loop, done):
    deadline_s = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline_s
        loop.step(1.0)


def test_both_sides_get_a_link_when_the_handshake_is_done(loop, side_of):
    server, client = side_of(), side_of()
    attempt = client.begin(server.listen())
    step_until(loop, lambda: attempt.done.is_set() and server.opened)
    assert attempt.link is client.opened[0]
    assert [link.accepted for link in client.opened + server.opened] == [False, True]
    assert len(list(server.doors.descriptors())) == 1
    assert not list(client.doors.descriptors())


def test_a_link_that_nobody_waits_for_any_more_is_aborted(loop, side_of):
    server, client = side_of(), side_of()
    attempt = client.begin(server.listen())
    attempt.abandoned = True
    step_until(loop, attempt.done.is_set)
    assert client.opened[0].reasons == ["nobody waits for it any more"]


def test_a_wrong_secret_fails_the_attempt_and_opens_nothing(loop, side_of):
    server, client = side_of(), side_of(secret=b"another one")
    attempt = client.begin(server.listen())
    step_until(loop, attempt.done.is_set)
    assert isinstance(attempt.error, AuthError)
    assert not server.opened + client.opened


def test_the_oldest_unproven_connection_makes_room(loop, side_of):
    server = side_of(max_unproven=2)
    address = server.listen()
    strangers = [socket.create_connection((address.name, address.port)) for _ in range(3)]
    for stranger in strangers:
        stranger.setblocking(False)

    def is_closed(stranger):
        try:
            while data := stranger.recv(4096):
                assert data
        except BlockingIOError:
            return False
        return True

    step_until(loop, lambda: is_closed(strangers[0]))
    assert [is_closed(stranger) for stranger in strangers] == [True, False, False]
    attempt = side_of().begin(address)
    step_until(loop, attempt.done.is_set)
    assert attempt.link is not None
    for stranger in strangers:
        stranger.close()


def test_closing_ends_what_is_under_way(side_of):
    server, client = side_of(), side_of()
    address = server.listen()
    pending = client.begin(address)
    client.doors.close()
    late = client.begin(address)
    for attempt in (pending, late):
        assert attempt.done.is_set()
        assert isinstance(attempt.error, PeerLost)
        assert "the transport was closed" in str(attempt.error)
    assert not list(client.doors.descriptors())
