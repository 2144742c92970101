"""The frames of a link that wait to leave: by priority, then by order, as far as credit goes. Pure.

Not thread-safe: the link's lock guards it. Called by every link.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bireme.transport.base import Frame
from bireme.transport.credit import SendWindow

__all__ = ("Outbox", "Waiting")


class Waiting(NamedTuple):
    """A frame in the queue; compares by priority and order, never by frame."""

    minus_priority: int
    number: int
    frame: Frame
    on_sent: Callable[[], None] | None


class Outbox:
    """A priority queue behind a credit window.

    Args:
        window_bytes: Payload that the peer lets this side have under way.

    Example:
        >>> outbox = Outbox(1000)
        >>> outbox.push(Frame(b"a"), 0, None); outbox.push(Frame(b"b"), 5, None)
        >>> outbox.pop().frame.head, outbox.pop().frame.head, outbox.pop()
        (b'b', b'a', None)
    """

    __slots__ = ("_heap", "_number", "queued_bytes", "waiting", "window")

    def __init__(self, window_bytes: int) -> None:
        self.window = SendWindow(window_bytes)
        self.queued_bytes = 0
        self._heap: list[Waiting] = []
        self.waiting: Sequence[Waiting] = self._heap
        """The frames in the queue, in no particular order."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, frame: Frame, priority: int, on_sent: Callable[[], None] | None) -> None:
        """Queue a frame behind those of its priority."""
        self._number += 1
        self.queued_bytes += frame.payload_bytes
        heapq.heappush(self._heap, Waiting(-priority, self._number, frame, on_sent))

    def may_pass(self, frame: Frame) -> bool:
        """Return whether ``frame`` may leave without queueing, and if so take its credit."""
        size_bytes = frame.payload_bytes
        window = self.window
        if self._heap or (
            size_bytes > window.window_bytes - window.outstanding_bytes
            and not window.allows(size_bytes)
        ):
            return False
        window.outstanding_bytes += size_bytes
        return True

    def pop(self) -> Waiting | None:
        """Take the frame that leaves next, or None if there is none or it lacks credit."""
        heap = self._heap
        if not heap or not self.window.allows(heap[0].frame.payload_bytes):
            return None
        waiting = heapq.heappop(heap)
        size_bytes = waiting.frame.payload_bytes
        self.queued_bytes -= size_bytes
        self.window.sent(size_bytes)
        return waiting

    def drain(self) -> list[Waiting]:
        """Take everything, in order, whatever the credit: for a link that closes."""
        drained = sorted(self._heap)
        self._heap.clear()
        self.queued_bytes = 0
        return drained
