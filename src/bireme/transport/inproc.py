"""Links between nodes that live in one process: payloads are handed over, not copied.

Called by embedded clusters and by tests. Transports that shall reach each other share an
`InprocHub`.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from bireme.errors import AuthError, ConfigError, PeerLost, StateError
from bireme.transport.base import (
    Arrived,
    Closed,
    Frame,
    Link,
    LinkEvent,
    LinkStatistics,
    Opened,
    ReceivedFrame,
    Transport,
    TransportOptions,
)
from bireme.transport.credit import ReceiveWindow
from bireme.transport.framing import check_frame, sink_target
from bireme.transport.outbox import Outbox, Waiting
from bireme.transport.pool import BufferPool, PooledBuffer

__all__ = ("InprocHub", "InprocTransport")

_SCHEME = "inproc://"


class InprocHub:
    """Where the transports of one process find each other.

    Example:
        >>> hub = InprocHub()
        >>> server, client = InprocTransport(hub), InprocTransport(hub)
        >>> link = client.connect(server.listen("inproc://server"), timeout_s=1)
        >>> [type(event).__name__ for event in server.poll(0)]
        ['Opened']
        >>> client.close(); server.close()
    """

    def __init__(self) -> None:
        # One lock for all its links: what it guards is short, and a pair of links needs no order.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.listeners: dict[str, InprocTransport] = {}
        self.numbers = itertools.count(1)


class _InprocLink(Link):
    """One end of a pair."""

    def __init__(
        self, transport: "InprocTransport", remote: str, accepted: bool, window_bytes: int
    ) -> None:
        self.remote = remote
        self.accepted = accepted
        self.transport = transport
        self.other: _InprocLink = self
        self.outbox = Outbox(window_bytes)
        self.receive_window = ReceiveWindow(transport.options.window_bytes)
        self.closed_reason: str | None = None
        self.closing = False
        self.linger_until_s = 0.0
        self.sent = [0, 0]
        self.received = [0, 0]

    def send(
        self, frame: Frame, priority: int = 0, on_sent: Callable[[], None] | None = None
    ) -> None:
        """See `Link.send`."""
        check_frame(frame, self.transport.options.limits)
        with self.transport.hub.lock:
            if self.closing or self.closed_reason is not None:
                raise PeerLost(
                    f"cannot send to {self.remote}: {self.closed_reason or 'closed here'}"
                )
            self.outbox.push(frame, priority, on_sent)
            self.pump()

    def pump(self) -> list[Waiting]:
        """Hand over what has credit; return the frames that the end of the link dropped.

        The hub's lock is held.
        """
        moved = False
        while waiting := self.outbox.pop():
            self.sent[0] += 1
            self.sent[1] += len(waiting.frame.head) + waiting.frame.payload_bytes
            self.other.receive_window.received(waiting.frame.payload_bytes)
            self.other.transport.inbox.append((self.other, waiting))
            moved = True
        if moved:
            self.other.transport.arrived.notify_all()
        if self.closing and not len(self.outbox):
            return self.finish("closed here", "the peer closed the link", graceful=True)
        return []

    def close(self) -> None:
        """See `Link.close`."""
        with self.transport.hub.lock:
            if self.closing or self.closed_reason is not None:
                return
            self.closing = True
            self.linger_until_s = time.monotonic() + self.transport.options.linger_s
            self.transport.arrived.notify_all()
            dropped = self.pump()
        _report(dropped)

    def abort(self, reason: str) -> None:
        """See `Link.abort`."""
        with self.transport.hub.lock:
            dropped = self.finish(reason, f"the peer ended the link: {reason}", graceful=False)
        _report(dropped)

    def finish(self, reason: str, reason_there: str, *, graceful: bool) -> list[Waiting]:
        """End both ends and return the frames that will not arrive. The hub's lock is held."""
        dropped: list[Waiting] = []
        for end, why in ((self, reason), (self.other, reason_there)):
            if end.closed_reason is None:
                end.closed_reason = why
                dropped += end.outbox.drain()
                end.transport.links.discard(end)
                end.transport.inbox.append((end, Closed(end, why, graceful)))
                end.transport.arrived.notify_all()
        return dropped

    def give_back(
        self, size_bytes: int, on_sent: Callable[[], None] | None, _frame: ReceivedFrame
    ) -> None:
        """Return credit to the sender, and its memory."""
        dropped: list[Waiting] = []
        with self.transport.hub.lock:
            report_bytes = self.receive_window.released(size_bytes)
            if report_bytes and self.other.closed_reason is None:
                self.other.outbox.window.returned(report_bytes)
                dropped = self.other.pump()
        _report(dropped)
        if on_sent is not None:
            on_sent()

    def statistics(self) -> LinkStatistics:
        """See `Link.statistics`."""
        with self.transport.hub.lock:
            return LinkStatistics(
                frames_sent=self.sent[0],
                sent_bytes=self.sent[1],
                frames_received=self.received[0],
                received_bytes=self.received[1],
                queued_frames=len(self.outbox),
                queued_bytes=self.outbox.queued_bytes,
                unreleased_bytes=self.receive_window.unreleased_bytes,
                outstanding_bytes=self.outbox.window.outstanding_bytes,
            )


class InprocTransport(Transport):
    """One node's end of a process-wide hub.

    A payload of one piece is shown to the receiver where it lies, so ``on_sent`` comes when the
    receiver releases it. One of several pieces is copied together.

    Args:
        hub: Shared with the transports to reach.
        options: Limits; transports of another secret or job are refused.
    """

    def __init__(self, hub: InprocHub, options: TransportOptions | None = None) -> None:
        self.hub = hub
        self.options = options or TransportOptions()
        self.arrived = threading.Condition(hub.lock)
        self.inbox: deque[tuple[_InprocLink, Waiting | Opened | Closed]] = deque()
        self.links: set[_InprocLink] = set()
        self._names: list[str] = []
        self._woken = False
        self._closed = False
        self._pool = BufferPool(self.options.window_bytes)
        self._polling = threading.Lock()

    def listen(self, address: str) -> str:
        """See `Transport.listen`."""
        name = _name(address)
        with self.hub.lock:
            self._refuse_closed()
            name = name or f"{next(self.hub.numbers)}"
            if name in self.hub.listeners:
                raise ConfigError(f"{_SCHEME}{name} is taken; choose another name")
            self.hub.listeners[name] = self
            self._names.append(name)
            self.hub.changed.notify_all()
        return _SCHEME + name

    def connect(self, address: str, timeout_s: float) -> Link:
        """See `Transport.connect`."""
        name = _name(address)
        with self.hub.lock:
            self._refuse_closed()
            if not self.hub.changed.wait_for(lambda: name in self.hub.listeners, timeout_s):
                raise PeerLost(f"nobody listens at {address} within {timeout_s:g} s")
            other = self.hub.listeners[name]
            if (self.options.secret, self.options.job) != (other.options.secret, other.options.job):
                raise AuthError(f"{address} refused this process: another secret or another job")
            here = _InprocLink(self, address, False, other.options.window_bytes)
            there = _InprocLink(other, address, True, self.options.window_bytes)
            here.other, there.other = there, here
            for link in (here, there):
                link.peer = dict(link.other.transport.options.identity)
                link.transport.links.add(link)
                link.transport.inbox.append((link, Opened(link)))
                link.transport.arrived.notify_all()
        return here

    def poll(self, timeout_s: float | None) -> list[LinkEvent]:
        """See `Transport.poll`."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._polling.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return []
        try:
            self._refuse_closed()
            while True:
                taken = self._wait(deadline_s)
                events = [event for item in taken if (event := self._event(*item)) is not None]
                if events or not taken:
                    return events
        finally:
            self._polling.release()

    def _wait(
        self, deadline_s: float | None
    ) -> list[tuple[_InprocLink, Waiting | Opened | Closed]]:
        """Return what is in the inbox once something is; nothing after a wake or the limit."""
        with self.arrived:
            while not self.inbox and not self._woken:
                now_s = time.monotonic()
                if deadline_s is not None and now_s >= deadline_s:
                    break
                until_s = self._end_lingering(now_s, deadline_s)
                if not self.inbox:
                    self.arrived.wait(None if until_s is None else max(until_s - now_s, 0))
            self._woken = False
            taken = list(self.inbox)
            self.inbox.clear()
            return taken

    def _end_lingering(self, now_s: float, deadline_s: float | None) -> float | None:
        """Abort the links that linger too long; return when to look again."""
        until_s = deadline_s
        for link in [link for link in self.links if link.closing]:
            if link.linger_until_s <= now_s:
                link.abort("its queue could not be sent within the linger limit")
            else:
                until_s = min(link.linger_until_s, until_s or link.linger_until_s)
        return until_s

    def _event(self, link: _InprocLink, item: Waiting | Opened | Closed) -> LinkEvent | None:
        """Make a handed-over frame an event; None for one that comes after `close`."""
        if not isinstance(item, Waiting):
            return item
        frame, on_sent = item.frame, item.on_sent
        size_bytes = frame.payload_bytes
        link.received[0] += 1
        link.received[1] += len(frame.head) + size_bytes
        if link.closing:
            link.give_back(size_bytes, on_sent, ReceivedFrame(frame.head, memoryview(b"")))
            return None
        payload, on_sent, on_release = self._payload(link, frame, on_sent)
        if on_sent is not None:
            on_sent()
        give_back = partial(link.give_back, size_bytes, on_release)
        return Arrived(link, ReceivedFrame(frame.head, payload, give_back))

    def _payload(
        self, link: _InprocLink, frame: Frame, on_sent: Callable[[], None] | None
    ) -> tuple[memoryview, Callable[[], None] | None, Callable[[], None] | None]:
        """Return the payload, what to call now, and what to call at its release."""
        if not frame.payload_bytes:
            return memoryview(b""), on_sent, None
        target = sink_target(self.sink, link, frame.head, frame.payload_bytes)
        if target is not None:
            _gather(frame, target)
            return target, on_sent, None
        if len(frame.payload) == 1:
            return frame.payload[0], None, on_sent
        target = self._pool.take(frame.payload_bytes)
        _gather(frame, target)
        return target, on_sent, partial(self._pool.give, target)

    def wake(self) -> None:
        """See `Transport.wake`."""
        with self.arrived:
            self._woken = True
            self.arrived.notify_all()

    def close(self) -> None:
        """See `Transport.close`."""
        with self.hub.lock:
            if self._closed:
                return
            self._closed = True
            for name in self._names:
                del self.hub.listeners[name]
            links = list(self.links)
            for link in links:
                link.close()
            # Frames that wait for credit need the peer's thread to release what it has.
            self.arrived.wait_for(lambda: not self.links, self.options.linger_s)
        for link in links:
            link.abort("its transport closed")
        self._pool.clear()
        self.wake()

    def allocate(self, size_bytes: int) -> PooledBuffer:
        """See `Transport.allocate`."""
        return PooledBuffer(self._pool, size_bytes)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StateError("this transport is closed")


def _name(address: str) -> str:
    if not address.startswith(_SCHEME):
        raise ConfigError(f"an address of this transport starts with {_SCHEME}, got {address!r}")
    return address.removeprefix(_SCHEME)


def _gather(frame: Frame, target: memoryview) -> None:
    """Copy the pieces of a payload into one."""
    at = 0
    for piece in frame.payload:
        target[at : at + piece.nbytes] = piece
        at += piece.nbytes


def _report(dropped: list[Waiting]) -> None:
    """Tell the senders of frames that will not arrive that their memory may change."""
    for waiting in dropped:
        if waiting.on_sent is not None:
            waiting.on_sent()
