"""Which sockets can be read or written: epoll where there is one, else what the system has.

Called by :mod:`bireme.transport.loop` before every sleep, so that on Linux it is one call of the
system and nothing else.
"""

import select
import selectors
from collections.abc import Iterator
from functools import partial
from typing import Protocol

__all__ = ("READING", "WRITING", "PortableWatcher", "Watcher", "new_watcher")

READING = 1
"""Bytes can be read, or the end of the stream."""
WRITING = 4
"""Bytes can be written. Both numbers are those of Linux; more bits say that something is wrong,
which shows by reading and by writing."""

_MOST_AT_A_TIME = 64


class Watcher(Protocol):
    """What a loop needs."""

    def register(self, descriptor: int, mask: int) -> None:
        """Watch a descriptor."""

    def modify(self, descriptor: int, mask: int) -> None:
        """Watch for something else."""

    def unregister(self, descriptor: int) -> None:
        """Watch no more."""

    def poll(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """Wait until something is possible; return what, by descriptor."""

    def descriptors(self) -> Iterator[int]:
        """Yield descriptors that a forked child has too."""

    def close(self) -> None:
        """Free what it takes."""


class PortableWatcher:
    """Watches by what :mod:`selectors` finds best.

    Example:
        >>> import socket
        >>> watcher = PortableWatcher()
        >>> one, other = socket.socketpair()
        >>> watcher.register(one.fileno(), WRITING)
        >>> watcher.poll(0.0) == [(one.fileno(), WRITING)]
        True
        >>> one.close(); other.close(); watcher.close()
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, descriptor: int, mask: int) -> None:
        """See `Watcher`."""
        self._selector.register(descriptor, _events(mask))

    def modify(self, descriptor: int, mask: int) -> None:
        """See `Watcher`."""
        self._selector.modify(descriptor, _events(mask))

    def unregister(self, descriptor: int) -> None:
        """See `Watcher`."""
        self._selector.unregister(descriptor)

    def poll(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """See `Watcher`."""
        return [(key.fd, _mask(events)) for key, events in self._selector.select(timeout_s)]

    def descriptors(self) -> Iterator[int]:
        """See `Watcher`. Kqueues are not inherited, and others have none."""
        yield from ()

    def close(self) -> None:
        """See `Watcher`."""
        self._selector.close()


def _events(mask: int) -> int:
    reads = selectors.EVENT_READ if mask & READING else 0
    return reads | (selectors.EVENT_WRITE if mask & WRITING else 0)


def _mask(events: int) -> int:
    reads = READING if events & selectors.EVENT_READ else 0
    return reads | (WRITING if events & selectors.EVENT_WRITE else 0)


if hasattr(select, "epoll"):

    class _EpollWatcher:
        """Watches by epoll."""

        def __init__(self) -> None:
            self._epoll = select.epoll()
            self.register = self._epoll.register
            self.modify = self._epoll.modify
            self.unregister = self._epoll.unregister
            self.close = self._epoll.close
            self.poll = partial(self._epoll.poll, maxevents=_MOST_AT_A_TIME)

        def descriptors(self) -> Iterator[int]:
            """See `Watcher`."""
            if not self._epoll.closed:
                yield self._epoll.fileno()

    def new_watcher() -> Watcher:
        """Return the fastest watcher of this system."""
        return _EpollWatcher()

else:

    def new_watcher() -> Watcher:
        """Return the fastest watcher of this system."""
        return PortableWatcher()
