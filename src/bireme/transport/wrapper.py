"""What wrappers of a transport share: every link and event of the inner one, in their own clothes.

Called by `faulty` and `metered`.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from bireme.transport.base import (
    Arrived,
    Buffer,
    Closed,
    Frame,
    Link,
    LinkEvent,
    LinkStatistics,
    Opened,
    PayloadSink,
    Transport,
)
from bireme.transport.pacing import Pacing

__all__ = ("WrappedLink", "WrappedTransport")


class WrappedLink(Link):
    """A link that passes everything on to another.

    Args:
        inner: The link that does the work.
    """

    def __init__(self, inner: Link) -> None:
        self.inner = inner
        self.peer = inner.peer
        self.remote = inner.remote
        self.accepted = inner.accepted

    def send(
        self, frame: Frame, priority: int = 0, on_sent: Callable[[], None] | None = None
    ) -> None:
        """See `Link.send`."""
        self.inner.send(frame, priority, on_sent)

    def close(self) -> None:
        """See `Link.close`."""
        self.inner.close()

    def abort(self, reason: str) -> None:
        """See `Link.abort`."""
        self.inner.abort(reason)

    def statistics(self) -> LinkStatistics:
        """See `Link.statistics`."""
        return self.inner.statistics()


_LinkT = TypeVar("_LinkT", bound=WrappedLink)


class WrappedTransport(Transport, Generic[_LinkT]):
    """A transport that passes everything on to another.

    Args:
        inner: The transport that does the work; closed with this one.
    """

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self._lock = threading.Lock()
        self._links: dict[Link, _LinkT] = {}
        self._sink: PayloadSink | None = None

    @abstractmethod
    def wrap(self, inner: Link) -> _LinkT:
        """Return the wrapper of a new link."""

    def wrapper_of(self, inner: Link) -> _LinkT:
        """Return the one wrapper of a link."""
        with self._lock:
            found = self._links.get(inner)
            if found is None:
                found = self._links[inner] = self.wrap(inner)
            return found

    def links(self) -> list[_LinkT]:
        """Return the wrappers of the links that are open."""
        with self._lock:
            return list(self._links.values())

    @property
    def sink(self) -> PayloadSink | None:
        """See `Transport.sink`."""
        return self._sink

    @sink.setter
    def sink(self, sink: PayloadSink | None) -> None:
        self._sink = sink
        self.inner.sink = None if sink is None else self._ask_sink

    def _ask_sink(self, link: Link, head: bytes, payload_bytes: int) -> memoryview | None:
        return self._sink(self.wrapper_of(link), head, payload_bytes) if self._sink else None

    def listen(self, address: str) -> str:
        """See `Transport.listen`."""
        return self.inner.listen(address)

    def connect(self, address: str, timeout_s: float) -> Link:
        """See `Transport.connect`."""
        return self.wrapper_of(self.inner.connect(address, timeout_s))

    def poll(self, timeout_s: float | None) -> list[LinkEvent]:
        """See `Transport.poll`."""
        return [self.event_of(event) for event in self.inner.poll(timeout_s)]

    def event_of(self, event: LinkEvent) -> LinkEvent:
        """Return an event of the inner transport as one of this."""
        link = self.wrapper_of(event.link)
        if isinstance(event, Arrived):
            return Arrived(link, event.frame)
        if isinstance(event, Opened):
            return Opened(link)
        with self._lock:
            del self._links[event.link]
        return Closed(link, event.reason, event.graceful)

    def pace(self, pacing: Pacing) -> None:
        """See `Transport.pace`."""
        self.inner.pace(pacing)

    def wake(self) -> None:
        """See `Transport.wake`."""
        self.inner.wake()

    def close(self) -> None:
        """See `Transport.close`."""
        self.inner.close()

    def allocate(self, size_bytes: int) -> Buffer:
        """See `Transport.allocate`."""
        return self.inner.allocate(size_bytes)
