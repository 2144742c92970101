"""A board in shared memory where the ranks of one machine agree on a repeated step by themselves.

A rank posts the slots of what it has submitted; who posts the last one that a slot waited for
writes what runs now to a log, in which every rank reads the same order. So nobody has to ask
rank 0, and a rank that comes last does not wait at all. Rank 0's coordinator opens the board when
nothing is under way, and whoever has to tell it something else freezes the board first; what is
posted then counts as reported (see `Coordinator`).
Called by `Negotiation`, under its lock but for `wait` and `wake`.
"""

import ctypes
import fcntl
import os
import threading
from collections.abc import Iterator
from typing import Any

from bireme.collective.bank.futex import Futex
from bireme.collective.bank.meeting import Store, meet
from bireme.collective.bank.segment import Layout, Segment
from bireme.transport.forks import close_in_children

__all__ = ("MAX_RANKS", "MAX_SLOTS", "PATIENCE_S", "Board")

MAX_SLOTS = 1024
"""Slots from here on are reported to the coordinator."""
PATIENCE_S = 0.1
"""How long a rank sleeps at the board at most; after that it leaves the wait to the coordinator."""

_WIDTH = MAX_SLOTS // 8
_AREA_BYTES = MAX_SLOTS * _WIDTH
# The log is a ring. A slot runs again only after every rank has posted it again, which it does
# after it has read of the last time; so no rank is more entries behind than there are slots.
_EPOCH, _COUNT = 0, 1
_LINES_AT, _LINE_BYTES = 4096, 256
_MASK_AT = 64
MAX_RANKS = (_AREA_BYTES - _LINES_AT) // _LINE_BYTES


class Board:
    """One rank's view of its machine's board. Not for several threads at once, but for `wait`.

    Args:
        segment: The shared memory, of `layout`; closed with the board.

    Guarantees:
        A rank that dies with the lock in its hands leaves it free, also if it had forked children.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._rank = segment.rank
        self._size = segment.layout.num_ranks
        # A lock of a descriptor of our own, so that ranks of one process exclude each other, too.
        self._lock = segment.open_again()
        close_in_children(self)
        head, log = segment.area(0, 0), segment.area(0, 1)
        self._head: Any = head.data
        self._log: Any = log.data
        self._counts: Any = self._head[:_LINES_AT].cast("Q")
        self._words: Any = self._head.cast("I")
        lines = [_LINES_AT + rank * _LINE_BYTES for rank in range(self._size)]
        self._bells = [line // 4 for line in lines]
        self._masks = [slice(line + _MASK_AT, line + _MASK_AT + _WIDTH) for line in lines]
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._head))
        self._addresses = [ctypes.c_void_p(start + line) for line in lines]
        self._futex = Futex(PATIENCE_S)
        self._fence = threading.Lock()
        self._num_read = 0

    @staticmethod
    def layout(size: int) -> Layout:
        """Return the sizes of the shared memory for so many ranks."""
        return Layout(size, _AREA_BYTES)

    @classmethod
    def join(cls, store: Store, rank: int, size: int, timeout_s: float) -> "Board":
        """Return the board of a job whose ranks are all on this machine; each of them calls this.

        Args:
            store: A ``torch.distributed`` store with keys of its own for this board.
            rank: This rank.
            size: How many there are, at most `MAX_RANKS`.
            timeout_s: How long to wait for the others.

        Raises:
            WaitTimeout: Somebody did not come; named.
            RankLost: Somebody came and died.
        """
        return cls(meet(store, rank, range(size), cls.layout(size), timeout_s))

    def descriptors(self) -> Iterator[int]:
        """See `Owner`."""
        yield self._lock

    @property
    def epoch(self) -> int:
        """Number of the verdict that opened the board; 0 while it is frozen."""
        return int(self._counts[_EPOCH])

    @property
    def bell(self) -> int:
        """A number that changes when this rank has to look at the board."""
        return int(self._words[self._bells[self._rank]])

    def post(self, mask: int, epoch: int) -> bool:
        """Say that this rank has submitted the slots in ``mask``.

        Args:
            mask: None of them posted and not run, all below `MAX_SLOTS`.
            epoch: What this rank knows of the board.

        Returns:
            False, and nothing is posted, if the board is frozen, or open for another epoch.
        """
        head, masks = self._head, self._masks
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self._counts[_EPOCH] != epoch:
                return False
            posted = [int.from_bytes(head[where], "little") for where in masks]
            posted[self._rank] |= mask
            ready = -1
            for each in posted:
                ready &= each
            if not ready:
                head[masks[self._rank]] = posted[self._rank].to_bytes(_WIDTH, "little")
                return True
            for where, each in zip(masks, posted, strict=True):
                head[where] = (each ^ ready).to_bytes(_WIDTH, "little")
            self._append(ready)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._wake_sleepers()
        return True

    def _append(self, ready: int) -> None:
        count = self._counts[_COUNT]
        at = count % MAX_SLOTS * _WIDTH
        self._log[at : at + _WIDTH] = ready.to_bytes(_WIDTH, "little")
        self._order_memory()
        self._counts[_COUNT] = count + 1
        self._ring()

    def _ring(self) -> None:
        """Have every rank look. With the lock held."""
        for bell in self._bells:
            self._words[bell] = (self._words[bell] + 1) & 0xFFFFFFFF

    def _wake_sleepers(self) -> None:
        # After the lock was let go, which orders the new bells before this look: who says later
        # that it sleeps finds that its bell has changed.
        for bell, address in zip(self._bells, self._addresses, strict=True):
            if self._words[bell + 1]:
                self._futex.wake(address)

    def read(self) -> list[int]:
        """Return what has been agreed to run since the last call, in order."""
        count = self._counts[_COUNT]
        if count == self._num_read:
            return []
        self._order_memory()
        runs = []
        for number in range(self._num_read, count):
            at = number % MAX_SLOTS * _WIDTH
            runs.append(int.from_bytes(self._log[at : at + _WIDTH], "little"))
        self._num_read = count
        return runs

    def freeze(self) -> None:
        """Take no more posts; everybody who sleeps at the board looks for news elsewhere."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            was_open = self._counts[_EPOCH]
            if was_open:
                self._counts[_EPOCH] = 0
                self._ring()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        if was_open:
            self._wake_sleepers()

    def absorb(self) -> list[int]:
        """Freeze, and return what each rank has posted and has not run; rank 0 calls this."""
        self.freeze()
        posted = [int.from_bytes(self._head[where], "little") for where in self._masks]
        for where in self._masks:
            self._head[where] = bytes(_WIDTH)
        return posted

    def open(self, epoch: int) -> None:
        """Take posts of ranks that know of this epoch; rank 0 calls this, before it tells them."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._counts[_EPOCH] = epoch
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def wait(self, bell: int, limit_s: float | None = None) -> None:
        """Sleep until `bell` is not ``bell`` any more, or `PATIENCE_S` or the limit are over."""
        word = self._bells[self._rank]
        if self._words[word] != bell:
            return
        futex = self._futex if limit_s is None or limit_s >= PATIENCE_S else Futex(limit_s)
        self._words[word + 1] = 1
        futex.wait(self._addresses[self._rank], bell)
        self._words[word + 1] = 0

    def wake(self) -> None:
        """Make this rank's `wait`, or its next one with the bell of before, return."""
        word = self._bells[self._rank]
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._words[word] = (self._words[word] + 1) & 0xFFFFFFFF
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._futex.wake(self._addresses[self._rank])

    def _order_memory(self) -> None:
        """See `Steps`."""
        self._fence.acquire()
        self._fence.release()

    def close(self) -> None:
        """Leave the board; the other ranks may go on."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            self._segment.close()
            os.close(lock)
