"""Connections that are not links yet: accepted here or opened by us, until the handshake is done.

Called by `SocketTransport`; everything but `Doors.listen` in its polling thread.
"""

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from bireme.errors import BiremeError, PeerLost
from bireme.transport.address import Address
from bireme.transport.auth import Credentials, Session
from bireme.transport.base import TransportOptions
from bireme.transport.endpoints import Endpoint, start_connecting
from bireme.transport.greeting import Greeting
from bireme.transport.link import SocketLink
from bireme.transport.loop import Loop
from bireme.transport.refusals import RefusalLog

__all__ = ("Attempt", "Doors")

_log = logging.getLogger(__name__)

_ACCEPT_PAUSE_S = 0.1

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

OpenLink = Callable[[Greeting, Session, Address, str, bool], SocketLink]
"""Makes a link of a greeting that has found a session, at an address, with the peer's address for
people, and whether the peer opened the connection."""


class Attempt:
    """A connection that this side opens, as seen by the thread that waits for it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.abandoned = False
        self.link: SocketLink | None = None
        self.error: Exception = PeerLost("it did not answer")

    def succeed(self, link: SocketLink) -> None:
        """Hand over the link."""
        self.link = link
        self.done.set()
        if self.abandoned:
            link.abort("nobody waits for it any more")

    def fail(self, error: Exception) -> None:
        """Say why there is none."""
        self.error = error
        self.done.set()


class Doors:
    """Listens, connects and greets.

    Args:
        loop: Polled by the transport.
        credentials: Proven to peers, and asked of them.
        options: The transport's.
        open_link: Called when a handshake is done.
    """

    def __init__(
        self,
        loop: Loop,
        credentials: Credentials,
        options: TransportOptions,
        open_link: OpenLink,
    ) -> None:
        self._loop = loop
        self._credentials = credentials
        self._options = options
        self._open_link = open_link
        self._listeners: list[tuple[socket.socket, Callable[[], None]]] = []
        self._greetings: dict[Greeting, Attempt | None] = {}
        self._refusals = RefusalLog()
        self._closed = False

    def listen(self, listener: socket.socket, bound: Address, clean: Callable[[], None]) -> None:
        """Accept connections from now on; any thread may call this.

        Args:
            listener: Listens already.
            bound: The address that reaches it.
            clean: Removes its traces once it is closed.
        """
        listener.setblocking(False)
        self._listeners.append((listener, clean))
        self._loop.soon(partial(self._watch, listener, bound))

    def open(
        self,
        attempt: Attempt,
        endpoint: Endpoint,
        address: Address,
        remote: str,
        deadline_s: float,
    ) -> None:
        """Begin to connect.

        Args:
            attempt: Told how it ends.
            endpoint: Where to.
            address: What was asked for, of which this is one endpoint.
            remote: The same for people.
            deadline_s: Until when, by ``time.monotonic()``.
        """
        if self._closed or attempt.abandoned:
            attempt.fail(PeerLost("the transport was closed"))
            return
        options = self._options
        try:
            greeting = Greeting(
                start_connecting(endpoint),
                self._credentials,
                client=True,
                shared=address.scheme == "shm+unix",
                tls=options.tls_client if address.scheme == "tcp" else None,
                host=address.name,
            )
        except (OSError, UnicodeError) as error:
            attempt.fail(PeerLost(str(error)))
            return
        limit_s = min(deadline_s, time.monotonic() + options.handshake_timeout_s)
        self._greet(greeting, attempt, address, remote, limit_s)

    def close(self) -> None:
        """Listen no more, and end what is not done."""
        self._closed = True
        for listener, clean in self._listeners:
            self._loop.forget(listener)
            listener.close()
            clean()
        for greeting in list(self._greetings):
            self._end(greeting, PeerLost("the transport was closed"))

    def descriptors(self) -> Iterator[int]:
        """Yield every open descriptor; see `bireme.transport.forks`."""
        for listener, _ in self._listeners:
            yield listener.fileno()
        for greeting in list(self._greetings):
            yield greeting.fileno()

    def _watch(self, listener: socket.socket, bound: Address) -> None:
        if not self._closed:
            self._loop.watch(listener, partial(self._accept, listener, bound), writing=False)

    def _accept(self, listener: socket.socket, bound: Address, _r: bool, _w: bool) -> None:
        while True:
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                _log.warning("cannot accept connections at %s for now: %s", bound, error)
                self._loop.forget(listener)
                again = partial(self._watch, listener, bound)
                self._loop.limit(listener, time.monotonic() + _ACCEPT_PAUSE_S, again)
                return
            remote = f"tcp://{peer[0]}:{peer[1]}" if bound.scheme == "tcp" else str(bound)
            options = self._options
            self._make_room(options.max_unproven)
            greeting = Greeting(
                connection,
                self._credentials,
                client=False,
                shared=bound.scheme == "shm+unix",
                tls=options.tls_server if bound.scheme == "tcp" else None,
            )
            deadline_s = time.monotonic() + options.handshake_timeout_s
            self._greet(greeting, None, bound, remote, deadline_s)

    def _make_room(self, max_unproven: int) -> None:
        """Drop the oldest unproven connection when there are too many: real peers need no time."""
        unproven = [greeting for greeting, attempt in self._greetings.items() if attempt is None]
        if len(unproven) >= max_unproven:
            self._end(unproven[0], PeerLost("too many unproven connections"))

    def _greet(
        self,
        greeting: Greeting,
        attempt: Attempt | None,
        address: Address,
        remote: str,
        deadline_s: float,
    ) -> None:
        self._greetings[greeting] = attempt
        advance = partial(self._advance, greeting, address, remote)
        self._loop.watch(greeting, advance, writing=greeting.wants_writing)
        left_s = deadline_s - time.monotonic()
        late = PeerLost(f"no handshake within {left_s:.2g} s")
        self._loop.limit(greeting, deadline_s, partial(self._end, greeting, late))

    def _advance(
        self, greeting: Greeting, address: Address, remote: str, _r: bool, _w: bool
    ) -> None:
        if greeting not in self._greetings:
            return
        try:
            session = greeting.advance()
        except (OSError, BiremeError) as error:
            self._end(greeting, error)
            return
        if session is None:
            advance = partial(self._advance, greeting, address, remote)
            self._loop.watch(greeting, advance, writing=greeting.wants_writing)
            return
        attempt = self._greetings.pop(greeting)
        self._loop.forget(greeting)
        link = self._open_link(greeting, session, address, remote, attempt is None)
        if attempt is not None:
            attempt.succeed(link)

    def _end(self, greeting: Greeting, error: Exception) -> None:
        attempt = self._greetings.pop(greeting, None)
        self._loop.forget(greeting)
        if attempt is None:
            self._refusals.add(error)
        greeting.abandon()
        if attempt is not None:
            attempt.fail(error)
