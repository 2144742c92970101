"""Memory that other processes of this machine can map, and who still reads it.

It consists of anonymous memory files (``memfd_create``), which have no name anywhere and vanish
with the last process that maps them, however it dies. One arena per transport: a block written once
can go to several peers. Called by the shared-memory links and by `Transport.allocate`.
"""

import ctypes
import fcntl
import mmap
import os
import sys
import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable

from bireme.transport.pages import PAGE_BYTES, Runs, advise_huge, in_pages
from bireme.transport.pool import tracked_view

__all__ = ("Arena", "Block", "Segment", "SharedBuffer", "map_segment")

_SEGMENT_BYTES = 16 << 20

# Memory files are Linux's. Elsewhere an arena is always full, and payloads go through the socket.
_AVAILABLE = sys.platform == "linux"
_SEALS = (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL) if _AVAILABLE else 0


class Segment:
    """One memory file. Its size is sealed: a reader can never fault because the file shrank.

    Args:
        number: Its number in the arena.
        size_bytes: A multiple of the page size.
    """

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number = number
        self.size_bytes = size_bytes
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptor = os.memfd_create("bireme", flags)
        try:
            os.ftruncate(self.descriptor, size_bytes)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            memory = mmap.mmap(self.descriptor, size_bytes)
        except OSError:
            os.close(self.descriptor)
            raise
        advise_huge(memory)
        self.view = memoryview(memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._runs = Runs(size_bytes)
        # The start of every block in use, in order.
        self._starts: list[int] = []
        self._blocks: dict[int, Block] = {}

    def take(self, size_bytes: int) -> "Block | None":
        """Return the lowest block that fits."""
        start = self._runs.take(size_bytes)
        if start is None:
            return None
        block = Block(self, start, size_bytes)
        self._blocks[start] = block
        insort(self._starts, start)
        return block

    def give(self, block: "Block") -> None:
        """Take a block back."""
        del self._blocks[block.start]
        self._starts.remove(block.start)
        self._runs.give(block.start, block.size_bytes)

    def find(self, offset_bytes: int) -> "Block | None":
        """Return the block in use that covers an offset."""
        index = bisect_right(self._starts, offset_bytes)
        if not index:
            return None
        block = self._blocks[self._starts[index - 1]]
        return block if offset_bytes < block.start + block.size_bytes else None


class Block:
    """A run of a segment; ``num_users`` counts this process's views and the peers that read it."""

    __slots__ = ("num_users", "segment", "size_bytes", "start")

    def __init__(self, segment: Segment, start: int, size_bytes: int) -> None:
        self.segment = segment
        self.start = start
        self.size_bytes = size_bytes
        self.num_users = 1


class Arena:
    """Hands out blocks. Thread-safe.

    Args:
        max_bytes: How large it may grow; what it cannot hold travels through the socket.

    Example:
        >>> arena = Arena(1 << 24)
        >>> block = arena.take(5000); block.size_bytes, arena.used_bytes
        (8192, 8192)
        >>> arena.drop([block]); arena.used_bytes
        0
        >>> arena.take(1 << 25) is None
        True
        >>> arena.close()
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        # Finalizers may run in the middle of anything, so they only leave their block here.
        self._forgotten: deque[Block] = deque()
        self._closed = False
        self.used_bytes = 0

    def take(self, size_bytes: int) -> Block | None:
        """Return a block with one user, or None when the arena is full. Never blocks."""
        size_bytes = in_pages(size_bytes)
        with self._lock:
            self._collect()
            block = self._take(size_bytes)
            if block is not None:
                self.used_bytes += size_bytes
            return block

    def _take(self, size_bytes: int) -> Block | None:
        for segment in self._segments:
            block = segment.take(size_bytes)
            if block is not None:
                return block
        total_bytes = sum(segment.size_bytes for segment in self._segments)
        room_bytes = self._max_bytes - total_bytes
        if not _AVAILABLE or self._closed or room_bytes < size_bytes:
            return None
        new_bytes = max(min(_SEGMENT_BYTES, room_bytes // PAGE_BYTES * PAGE_BYTES), size_bytes)
        try:
            segment = Segment(len(self._segments), new_bytes)
        except OSError:
            return None
        self._segments.append(segment)
        return segment.take(size_bytes)

    def find(self, view: memoryview) -> tuple[Block, int] | None:
        """Return the block that ``view`` lies in and its offset in the segment; one more user."""
        if view.readonly:
            return None
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        with self._lock:
            for segment in self._segments:
                offset_bytes = address - segment.address
                if 0 <= offset_bytes < segment.size_bytes:
                    block = segment.find(offset_bytes)
                    if block is not None:
                        block.num_users += 1
                        return block, offset_bytes
        return None

    def drop(self, blocks: Iterable[Block]) -> None:
        """Count one user less of each block."""
        with self._lock:
            for block in blocks:
                self._drop(block)

    def forget(self, block: Block) -> None:
        """Count one user less, later: for finalizers."""
        self._forgotten.append(block)

    def _collect(self) -> None:
        while self._forgotten:
            self._drop(self._forgotten.popleft())

    def _drop(self, block: Block) -> None:
        block.num_users -= 1
        if not block.num_users:
            self.used_bytes -= block.size_bytes
            block.segment.give(block)

    def close(self) -> None:
        """Close the files; memory stays until its last view is gone, here and in the peers."""
        with self._lock:
            self._closed = True
            segments, self._segments = self._segments, []
        for segment in segments:
            os.close(segment.descriptor)


class SharedBuffer:
    """A `Buffer` in an arena. Its block is free when its last view is gone and all peers read it.

    Args:
        arena: Where the block comes from.
        block: The block; its one user is this buffer.
        size_bytes: How much of it was asked for, > 0.
    """

    __slots__ = ("view",)

    def __init__(self, arena: Arena, block: Block, size_bytes: int) -> None:
        memory = block.segment.view[block.start : block.start + size_bytes]
        self.view = tracked_view(memory, lambda _: arena.forget(block))

    def release(self) -> None:
        """Forget the memory."""
        self.view = memoryview(b"")


def map_segment(descriptor: int, size_bytes: int) -> memoryview:
    """Map a segment of a peer, and close the descriptor.

    Raises:
        OSError: It cannot be mapped.
        ValueError: It is no memory file of that size with its size sealed.
    """
    try:
        if os.fstat(descriptor).st_size != size_bytes:
            raise ValueError("its size is not the one that was announced")
        if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise ValueError("it could shrink while it is read")
        memory = mmap.mmap(descriptor, size_bytes)
        advise_huge(memory)
        return memoryview(memory)
    finally:
        os.close(descriptor)
