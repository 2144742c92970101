"""Memory that is used again: fresh pages cost three to five times a copy.

Called by the links for payloads that arrive, and by `Transport.allocate` where there is no shared
memory.
"""

import ctypes
import mmap
import threading
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from bireme.transport.demand import Demand
from bireme.transport.pages import PAGE_BYTES, advise_huge

__all__ = ("BufferPool", "PooledBuffer", "tracked_view")

_MOST_OF_SIZE = 1.5
"""Up to so many times what is asked for, idle memory is better than fresh pages."""
_IDLE_OF_LASTING = 0.9
"""A server replaces all its values in a step: what it held for them is what it needs next. With as
much as lasts, what rounding up takes would bring it over twice its values by a tenth and more."""
_LARGE_BYTES = 1 << 20
"""From here on pieces that lie side by side may fill huge pages."""


def _fresh(size_bytes: int) -> memoryview:
    """Return memory of the system, on huge pages if it is large and they are allowed."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size_bytes >= _LARGE_BYTES:
        advise_huge(memory)
    return memoryview(memory)


def _class_bytes(size_bytes: int) -> int:
    """Round up to whole pages, and to one of eight sizes per power of two.

    >>> [_class_bytes(n) for n in (1, 4097, 1 << 20, (1 << 20) + 1)]
    [4096, 8192, 1048576, 1179648]
    """
    step = max(PAGE_BYTES, (1 << (size_bytes - 1).bit_length()) // 16)
    return -(-size_bytes // step) * step


class BufferPool:
    """Hands out page-aligned memory and takes it back. Thread-safe.

    Args:
        max_idle_bytes: Most memory that it keeps while nobody uses it, >= 0; more only where more
            than that is in use all the time, as by the values of a server.

    Guarantees:
        What has just come back is kept, and of what no longer fits that size goes which was given
        back longest ago: where sizes change, those of the past do not crowd out those in use.
        What is idle and what is in use are together no more than `Demand` says is worth holding.

    Example:
        >>> pool = BufferPool(1 << 20)
        >>> first = pool.take(10_000); len(first)
        10000
        >>> pool.give(first); pool.idle_bytes
        12288
        >>> second = pool.take(10_240); pool.idle_bytes
        0
    """

    def __init__(self, max_idle_bytes: int) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._idle: dict[int, list[memoryview]] = {}
        self._demand = Demand()
        self._lock = threading.Lock()
        # For finalizers, which run in the middle of anything, also of what holds the lock.
        self._forgotten: deque[memoryview] = deque()
        self.idle_bytes = 0

    def take(self, size_bytes: int) -> memoryview:
        """Return writable memory with any content."""
        class_bytes = _class_bytes(size_bytes)
        while self._forgotten:
            self.give(self._forgotten.popleft())
        with self._lock:
            whole = self._warm(class_bytes, size_bytes)
            if whole is not None:
                self._demand.took(whole.nbytes)
            else:
                whole = _fresh(class_bytes)
                self._demand.took(class_bytes)
                self._trim()
        return whole[:size_bytes]

    def give(self, view: memoryview) -> None:
        """Take back what `take` returned; the caller's views of it show other data from now on."""
        with self._lock:
            self._keep(memoryview(view.obj))

    def forget(self, view: memoryview) -> None:
        """Take back, now or soon: for finalizers."""
        if self._lock.acquire(blocking=False):
            try:
                self._keep(memoryview(view.obj))
            finally:
                self._lock.release()
        else:
            self._forgotten.append(view)

    def _keep(self, whole: memoryview) -> None:
        """Keep memory that nobody uses any more. The lock is held."""
        class_bytes = whole.nbytes
        self._demand.gave(class_bytes)
        if class_bytes > self._max_idle_bytes:
            return
        idle = self._idle.pop(class_bytes, [])
        idle.append(whole)
        # The sizes stand in the order in which memory last came back.
        self._idle[class_bytes] = idle
        self.idle_bytes += class_bytes
        self._trim()

    def _trim(self) -> None:
        """Give to the system what is not worth keeping. The lock is held."""
        worth_bytes = self._demand.worth_bytes - self._demand.used_bytes
        lasting_bytes = int(self._demand.lasting_bytes * _IDLE_OF_LASTING)
        most_bytes = min(worth_bytes, max(self._max_idle_bytes, lasting_bytes))
        while self.idle_bytes > most_bytes:
            self._drop_oldest()

    def _warm(self, class_bytes: int, size_bytes: int) -> memoryview | None:
        """Return memory that is idle, of the least size that will do. The lock is held."""
        most_bytes = max(class_bytes, _MOST_OF_SIZE * size_bytes)
        while class_bytes <= most_bytes:
            idle = self._idle.get(class_bytes)
            if idle:
                self.idle_bytes -= class_bytes
                whole = idle.pop()
                if not idle:
                    del self._idle[class_bytes]
                return whole
            class_bytes = _class_bytes(class_bytes + 1)
        return None

    def _drop_oldest(self) -> None:
        """Give some of the size that nobody has given back for longest to the system."""
        class_bytes, idle = next(iter(self._idle.items()))
        self.idle_bytes -= class_bytes
        del idle[0]
        if not idle:
            del self._idle[class_bytes]

    def clear(self) -> None:
        """Drop what nobody uses."""
        with self._lock:
            self._idle.clear()
            self.idle_bytes = 0


class PooledBuffer:
    """A `Buffer` of a pool. Its memory is used again when the last view of it is gone.

    So it may be released, or forgotten, while frames sent from it are under way.

    Args:
        pool: Where the memory comes from.
        size_bytes: > 0.

    Example:
        >>> pool = BufferPool(1 << 20)
        >>> buffer = PooledBuffer(pool, 10_240); kept = buffer.view[:10]
        >>> buffer.release(); again = pool.take(10_240); again.obj is kept.obj
        False
        >>> del kept; pool.clear(); len(pool.take(10_240))
        10240
    """

    __slots__ = ("view",)

    def __init__(self, pool: BufferPool, size_bytes: int) -> None:
        self.view = tracked_view(pool.take(size_bytes), pool.forget)

    @classmethod
    def of(cls, pool: BufferPool, memory: memoryview) -> "PooledBuffer":
        """Return a buffer of memory that was taken from the pool before.

        Example:
            >>> pool = BufferPool(1 << 20)
            >>> buffer = PooledBuffer.of(pool, pool.take(10_240)); buffer.view.nbytes
            10240
            >>> buffer.release(); memory = pool.take(10_240); pool.idle_bytes
            0
        """
        buffer = cls.__new__(cls)
        buffer.view = tracked_view(memory, pool.forget)
        return buffer

    def release(self) -> None:
        """Forget the memory."""
        self.view = memoryview(b"")


def tracked_view(memory: memoryview, forget: Callable[[memoryview], None]) -> memoryview:
    """Return a view of ``memory``, and call ``forget(memory)`` when nothing looks into it any more.

    Every view, tensor or array made from the view counts. ``forget`` may be called in the middle
    of anything, in any thread.

    Example:
        >>> view = tracked_view(memoryview(bytearray(8)), lambda memory: print(len(memory)))
        >>> kept = view[:2]; del view
        >>> del kept
        8
    """
    exporter = _exporter(memory.nbytes).from_buffer(memory)
    exporter.leave = lambda: forget(memory)
    return memoryview(exporter).cast("B")


@lru_cache(maxsize=1024)
def _exporter(size_bytes: int) -> Any:
    """Return a class of arrays of one size that say when they go.

    A finalizer of `weakref` would do the same, and costs several times as much.
    """
    return type("Exporter", (ctypes.c_ubyte * size_bytes,), {"__del__": _leave})


def _leave(exporter: Any) -> None:
    exporter.leave()
