"""Links over sockets: TCP between machines, Unix sockets and shared memory within one.

Called by the node room. One transport serves all three schemes with one loop, so that a thread
polls them together.
"""

import contextlib
import itertools
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial

from bireme.errors import (
    AuthError,
    ConfigError,
    PeerLost,
    RemoteProtocolError,
    StateError,
)
from bireme.transport.address import Address, parse_address
from bireme.transport.arena import Arena, SharedBuffer
from bireme.transport.auth import Credentials, Session
from bireme.transport.base import Buffer, Express, Link, LinkEvent, Transport, TransportOptions
from bireme.transport.doors import Attempt, Doors
from bireme.transport.endpoints import (
    bind,
    is_loopback,
    resolve,
    tune,
)
from bireme.transport.forks import close_in_children
from bireme.transport.greeting import Greeting
from bireme.transport.link import SocketLink
from bireme.transport.loop import Loop
from bireme.transport.orphans import Orphans
from bireme.transport.pacing import UNPACED, Pacing
from bireme.transport.pool import BufferPool, PooledBuffer
from bireme.transport.shm import SharedLink
from bireme.transport.streams import DescriptorStream

__all__ = ("SocketTransport",)

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25
_ACCEPT_PAUSE_S = 0.1
_CONFIRM_S = 0.25
"""How long a closing transport waits for peers to end their side, once everything has been sent."""

_TURN_S = 0.02
"""How long `connect` drives the loop, or waits for the thread that does, before it looks again."""


class SocketTransport(Transport):
    """Links over ``tcp://``, ``unix://`` and ``shm+unix://`` addresses.

    Args:
        options: Secret, identity and limits.

    Example:
        >>> with SocketTransport() as server, SocketTransport() as client:
        ...     thread = threading.Thread(target=server.poll, args=(5,))
        ...     thread.start()
        ...     link = client.connect(server.listen("unix://"), timeout_s=5)
        ...     thread.join()
    """

    def __init__(self, options: TransportOptions | None = None) -> None:
        self.options = options or TransportOptions()
        self._is_loopback_only = not (self.options.secret or self.options.is_open)
        self.pool = BufferPool(self.options.window_bytes * 5 // 4)
        self._credentials = Credentials(
            secret=self.options.secret,
            job=self.options.job,
            identity=self.options.identity,
            window_bytes=self.options.window_bytes,
        )
        self._loop = Loop()
        self._stepping = threading.Lock()
        self.events: deque[LinkEvent] = deque()
        self.taking: Express | None = None
        self._links: set[SocketLink] = set()
        self._arena = Arena(self.options.shared_bytes)
        self._orphans = Orphans(self._loop, self._arena)
        self._doors = Doors(self._loop, self._credentials, self.options, self._open)
        self._pacing = UNPACED
        self._shares = False
        self._closed = False
        self.soon = self._loop.soon
        self.before_sleep = self._loop.before_sleep
        self.emit = self.events.append
        close_in_children(self)

    def listen(self, address: str) -> str:
        """See `Transport.listen`."""
        parsed = self._parse(address)
        self._refuse_closed()
        listener, bound, clean = bind(parsed, loopback_only=self._is_loopback_only)
        self._doors.listen(listener, bound, clean)
        return str(bound)

    def adopt(self, listener: socket.socket) -> str:
        """Accept links at a TCP socket that listens already, and return its address.

        The socket is this transport's from now on, and no child process inherits it.

        Raises:
            ConfigError: It reaches beyond this machine while there is no secret.
        """
        self._refuse_closed()
        host, port = listener.getsockname()[:2]
        if self._is_loopback_only and not is_loopback((host, port)):
            raise ConfigError(
                f"the socket at {host}:{port} reaches beyond this machine, and there is no secret; "
                "set BIREME_SECRET, or listen on 127.0.0.1"
            )
        bound = Address("tcp", host, port)
        listener.set_inheritable(False)
        self._doors.listen(listener, bound, lambda: None)
        return str(bound)

    def connect(self, address: str, timeout_s: float) -> Link:
        """See `Transport.connect`."""
        parsed = self._parse(address)
        self._refuse_closed()
        deadline_s = time.monotonic() + timeout_s
        pause_s = _FIRST_PAUSE_S
        for number in itertools.count():
            attempt = self._attempt(number, parsed, address, deadline_s)
            if attempt.link is not None:
                return attempt.link
            if isinstance(attempt.error, AuthError | ConfigError):
                raise attempt.error
            reason = str(attempt.error)
            if isinstance(attempt.error, RemoteProtocolError):
                raise PeerLost(f"{address} answers, but is no node of a job: {reason}")
            if time.monotonic() + pause_s >= deadline_s:
                raise PeerLost(f"cannot reach {address} within {timeout_s:g} s: {reason}")
            self._drive(threading.Event(), time.monotonic() + pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("counting ended")

    def _attempt(self, number: int, address: Address, remote: str, deadline_s: float) -> Attempt:
        """Try to connect once, to each of a name's endpoints in turn."""
        attempt = Attempt()
        try:
            # Here and not in the polling thread: a name service may take its time.
            endpoints = resolve(address)
        except (OSError, UnicodeError) as error:
            attempt.fail(PeerLost(f"{error}"))
            return attempt
        endpoint = endpoints[number % len(endpoints)]
        self.soon(partial(self._doors.open, attempt, endpoint, address, remote, deadline_s))
        self._drive(attempt.done, deadline_s + _TURN_S)
        attempt.abandoned = not attempt.done.is_set()
        return attempt

    def poll(self, timeout_s: float | None) -> list[LinkEvent]:
        """See `Transport.poll`."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._stepping.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return []
        try:
            if self._closed:
                self._refuse_closed()
            # Not while `connect` drives the loop: who waits for a frame would not be woken.
            self.taking = self.express
            wait_s = 0.0 if self.events else timeout_s
            while True:
                woken = self._loop.step(wait_s)
                if self.events or woken or self._closed or self.returns_soon:
                    break
                if deadline_s is not None:
                    wait_s = deadline_s - time.monotonic()
                    if wait_s <= 0:
                        break
            events = list(self.events)
            self.events.clear()
            return events
        finally:
            self.taking, self.returns_soon = None, False
            self._stepping.release()

    def wake(self) -> None:
        """See `Transport.wake`."""
        self._loop.wake()

    def pace(self, pacing: Pacing) -> None:
        """See `Transport.pace`."""
        self._pacing = pacing
        for link in list(self._links):
            self._tune(link)

    def allocate(self, size_bytes: int) -> Buffer:
        """See `Transport.allocate`.

        Shared memory, once a ``shm+unix://`` address has been listened at or connected to.
        """
        if self._shares:
            block = self._arena.take(size_bytes)
            if block is not None:
                return SharedBuffer(self._arena, block, size_bytes)
        return PooledBuffer(self.pool, size_bytes)

    def close(self) -> None:
        """See `Transport.close`."""
        if self._closed:
            return
        self._closed = True
        self._loop.wake()
        with self._stepping:
            self._doors.close()
            for link in list(self._links):
                link.close()
            self._linger()
            self._orphans.close()
            self._arena.close()
            self._loop.close()
            self.events.clear()
            self.pool.clear()

    def _linger(self) -> None:
        """Let closing links send what is queued, and their peers a moment to confirm the end."""
        began_s = time.monotonic()
        while self._links:
            all_sent = all(link.said_goodbye for link in self._links)
            limit_s = self.options.linger_s
            left_s = (
                began_s + (min(limit_s, _CONFIRM_S) if all_sent else limit_s) - time.monotonic()
            )
            if left_s <= 0:
                break
            self._loop.step(min(left_s, _CONFIRM_S))
        for link in list(self._links):
            link.expired()

    def descriptors(self) -> Iterator[int]:
        """Yield every open descriptor; see `bireme.transport.forks`."""
        yield from self._doors.descriptors()
        for link in list(self._links):
            yield link.stream.fileno()
            if isinstance(link.stream, DescriptorStream):
                yield from link.stream.descriptors
        yield from self._loop.descriptors()
        yield from self._orphans.descriptors()

    # What links need of their owner.

    def watch(self, link: SocketLink, *, writing: bool) -> None:
        """See `LinkOwner`."""
        self._loop.watch(link.stream, link.ready, writing=writing)

    def limit(self, link: SocketLink, deadline_s: float) -> None:
        """See `LinkOwner`."""
        self._loop.limit(link.stream, deadline_s, link.expired)

    def forget(self, link: SocketLink) -> None:
        """See `LinkOwner`."""
        self._links.discard(link)
        self._loop.forget(link.stream)

    # What doors need of their owner.

    def _open(
        self, greeting: Greeting, session: Session, address: Address, remote: str, accepted: bool
    ) -> SocketLink:
        link = self._link(greeting, session, address, remote, accepted=accepted)
        self._links.add(link)
        self._tune(link)
        link.opened()
        return link

    def _tune(self, link: SocketLink) -> None:
        # A connection that has just broken says so itself.
        with contextlib.suppress(OSError):
            tune(link.stream.fileno(), self._pacing)

    def _link(
        self,
        greeting: Greeting,
        session: Session,
        address: Address,
        remote: str,
        *,
        accepted: bool,
    ) -> SocketLink:
        stream = greeting.stream
        assert stream is not None
        if isinstance(stream, DescriptorStream):
            return SharedLink(
                self,
                stream,
                session,
                remote=remote,
                accepted=accepted,
                first=greeting.rest,
                arena=self._arena,
                on_orphaned=partial(self._orphans.keep, stream.peer_process()),
            )
        # Local sockets and TLS let nobody else write to them.
        sealed = bool(self.options.secret) and address.scheme == "tcp" and not greeting.encrypted
        return SocketLink(
            self,
            stream,
            session,
            remote=remote,
            accepted=accepted,
            sealed=sealed,
            first=greeting.rest,
        )

    # Helpers of any thread.

    def _drive(self, done: threading.Event, deadline_s: float) -> None:
        """Wait for ``done``, driving the loop meanwhile unless another thread does."""
        while not done.is_set():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return
            turn_s = min(left_s, _TURN_S)
            if self._stepping.acquire(blocking=False):
                try:
                    self._refuse_closed()
                    self._loop.step(turn_s)
                finally:
                    self._stepping.release()
            else:
                done.wait(turn_s)

    def _parse(self, address: str) -> Address:
        parsed = parse_address(address)
        if parsed.scheme == "inproc":
            raise ConfigError(f"{address}: inproc addresses need an InprocTransport")
        self._shares = self._shares or parsed.scheme == "shm+unix"
        return parsed

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StateError("this transport is closed")
