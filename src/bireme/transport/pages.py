"""Runs of pages dealt out of a larger piece of memory, which huge pages hold where that is allowed.

Called by the arena.
"""

import contextlib
import mmap
from bisect import bisect_right

__all__ = ("PAGE_BYTES", "Runs", "advise_huge", "in_pages")

PAGE_BYTES = 4096


class Runs:
    """Which parts of a piece of memory are free. Not thread-safe.

    Args:
        size_bytes: Of the memory.

    Example:
        >>> runs = Runs(100)
        >>> runs.take(60), runs.take(60), runs.take(40), runs.free_bytes
        (0, None, 60, 0)
        >>> runs.give(0, 60); runs.give(60, 40); runs.take(100)
        0
    """

    __slots__ = ("_free", "free_bytes")

    def __init__(self, size_bytes: int) -> None:
        # As (start, end), in order; no two of them touch.
        self._free = [(0, size_bytes)]
        self.free_bytes = size_bytes

    def take(self, size_bytes: int) -> int | None:
        """Return the lowest place that fits: low memory is used over and over, and stays warm."""
        for index, (start, end) in enumerate(self._free):
            if end - start >= size_bytes:
                if end - start == size_bytes:
                    del self._free[index]
                else:
                    self._free[index] = (start + size_bytes, end)
                self.free_bytes -= size_bytes
                return start
        return None

    def give(self, start: int, size_bytes: int) -> None:
        """Take a run back and join it with its free neighbours."""
        end = start + size_bytes
        index = bisect_right(self._free, (start, end))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index and self._free[index - 1][1] == start:
            index -= 1
            start = self._free.pop(index)[0]
        self._free.insert(index, (start, end))
        self.free_bytes += size_bytes


def in_pages(size_bytes: int) -> int:
    """Round up to whole pages, at least one.

    >>> in_pages(0), in_pages(4096), in_pages(4097)
    (4096, 4096, 8192)
    """
    return max(-(-size_bytes // PAGE_BYTES), 1) * PAGE_BYTES


def advise_huge(memory: mmap.mmap) -> None:
    """Have the system use huge pages for ``memory``, where it can and may.

    Copies and sums run through tens of megabytes: with pages of 4 KB they miss the processor's
    table of pages all the time.
    """
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
