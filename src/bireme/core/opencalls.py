"""The calls of a worker's user that are not done, and when their limits end.

Called by :mod:`bireme.core.worker`. A call that has failed stays known to the requests that still
work for it (a push is kept until it is acknowledged), with ``open`` false.
"""

import heapq

from bireme.core.calls import Call

__all__ = ("OpenCall", "OpenCalls")


class OpenCall:
    """A call and how much of it is left to do.

    Args:
        call: The user's call.
        deadline_s: End of its limit.
        remaining: Parts that are not done: slots, servers, or 1.
    """

    __slots__ = ("call", "deadline_s", "id", "open", "remaining", "result")

    def __init__(self, call: Call, deadline_s: float, remaining: int) -> None:
        self.id = call.call
        self.call = call
        self.deadline_s = deadline_s
        self.remaining = remaining
        self.result: dict[int, object] = {}
        """What the parts have brought so far."""
        self.open = True


class OpenCalls:
    """Finds the calls whose limit is over; a step's worth of calls costs a few steps of a heap.

    Example:
        >>> from bireme.core.calls import BarrierCall
        >>> calls = OpenCalls()
        >>> _ = calls.open(BarrierCall(7, "epoch", 2.0), now_s=1.0)
        >>> calls.next_deadline_s(), [call.id for call in calls.expired(3.0)]
        (3.0, [7])
    """

    def __init__(self) -> None:
        self._calls: dict[int, OpenCall] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, call: Call, now_s: float, remaining: int = 1) -> OpenCall:
        """Take in a call; its limit runs from now."""
        opened = OpenCall(call, now_s + call.timeout_s, remaining)
        self._calls[call.call] = opened
        heapq.heappush(self._heap, (opened.deadline_s, call.call))
        if len(self._heap) > 64 + 4 * len(self._calls):
            self._heap = [(each.deadline_s, each.id) for each in self._calls.values()]
            heapq.heapify(self._heap)
        return opened

    def get(self, call: int) -> OpenCall | None:
        """Return an open call by its number."""
        return self._calls.get(call)

    def close(self, call: OpenCall) -> None:
        """Note that a call is done or has failed."""
        call.open = False
        self._calls.pop(call.id, None)

    def all(self) -> list[OpenCall]:
        """Return the open calls, oldest first."""
        return list(self._calls.values())

    def expired(self, now_s: float) -> list[OpenCall]:
        """Return the calls whose limit is over, each once; they stay open."""
        over = []
        while self._heap and self._heap[0][0] <= now_s:
            _, number = heapq.heappop(self._heap)
            call = self._calls.get(number)
            if call is not None:
                over.append(call)
        return over

    def next_deadline_s(self) -> float | None:
        """Return the end of the first limit."""
        while self._heap and self._heap[0][1] not in self._calls:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
