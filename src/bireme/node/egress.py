"""The order in which a worker's payloads leave, over all its links together.

Each link has a queue and a socket buffer of its own. Handing everything to the links at once would
leave it to the system which server gets how much of a slow network at a time, and what is urgent
would wait behind what is not. Called by the runtime of a worker whose link's speed is known.
"""

import heapq
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bireme.errors import PeerLost
from bireme.placement.links import frame_bytes
from bireme.transport.base import Frame, Link

__all__ = ("Egress", "egress_for")


def egress_for(bytes_per_s: float, slice_bytes: int) -> "Egress":
    """Return what orders the payloads that leave by a link of this speed.

    Args:
        bytes_per_s: Of this machine's link, > 0.
        slice_bytes: Of the job.

    Example:
        >>> egress_for(25e6, 1 << 20).waiting
        0
    """
    return Egress(frame_bytes(bytes_per_s, slice_bytes))


class _Waiting(NamedTuple):
    """A frame in the queue; compares by priority and order, never by frame."""

    minus_priority: int
    number: int
    size_bytes: int
    link: Link
    frame: Frame
    on_sent: Callable[[], None]


class Egress:
    """Hands frames to links one after the other, by priority and then in the order they came.

    Args:
        budget_bytes: Payload that links to other machines may have taken and not written yet; a
            frame that is larger goes alone.

    Guarantees:
        May be called from any thread. ``on_sent`` is called once for each frame, with no lock held,
        whether it has left or its link has closed. A link that takes nothing holds back the
        others: what goes to them needs it anyway, and would only fill their queues. What stays on
        this machine takes its turn too, or one share would be worked on all at once.

    Example:
        >>> egress = Egress(32 << 10)
        >>> egress.waiting
        0
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._heap: list[_Waiting] = []
        self._number = 0
        self._under_way_bytes = 0
        self._pumping = False

    @property
    def waiting(self) -> int:
        """How many frames no link has been given yet."""
        return len(self._heap)

    def send(self, link: Link, frame: Frame, priority: int, on_sent: Callable[[], None]) -> None:
        """Queue a frame, and give the links what they may have now."""
        with self._lock:
            self._number += 1
            size_bytes = frame.payload_bytes if link.remote.startswith("tcp:") else 0
            entry = _Waiting(-priority, self._number, size_bytes, link, frame, on_sent)
            heapq.heappush(self._heap, entry)
        self._pump()

    def _pump(self) -> None:
        """Give out frames until the budget is used up; one thread at a time does."""
        with self._lock:
            if self._pumping:
                return
            self._pumping = True
        while (entry := self._next()) is not None:
            done = partial(self._sent, entry.size_bytes, entry.on_sent)
            try:
                entry.link.send(entry.frame, -entry.minus_priority, done)
            except PeerLost:
                # The role hears of it by the link's ``Closed`` and sends again over the next one.
                done()

    def _next(self) -> _Waiting | None:
        with self._lock:
            if self._heap and self._fits(self._heap[0].size_bytes):
                entry = heapq.heappop(self._heap)
                self._under_way_bytes += entry.size_bytes
                return entry
            self._pumping = False
            return None

    def _fits(self, size_bytes: int) -> bool:
        under_way = self._under_way_bytes
        return not under_way or under_way + size_bytes <= self._budget_bytes

    def _sent(self, size_bytes: int, on_sent: Callable[[], None]) -> None:
        with self._lock:
            self._under_way_bytes -= size_bytes
        on_sent()
        self._pump()
