"""Virtual time: a clock that jumps from one event to the next."""

import heapq
from collections.abc import Callable
from itertools import count

from bireme.errors import ConfigError

__all__ = ("Clock",)


class Clock:
    """Runs callbacks in the order of their times; those of one time in the order of scheduling.

    Example:
        >>> clock, seen = Clock(), []
        >>> clock.at(2.0, seen.append, "b"); clock.at(1.0, seen.append, "a")
        >>> clock.run(until_s=5.0); seen, clock.now_s
        (['a', 'b'], 5.0)
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.num_events = 0
        """Callbacks run so far."""
        self._heap: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._order = count()

    def at(self, time_s: float, callback: Callable[..., object], *arguments: object) -> None:
        """Call ``callback(*arguments)`` at ``time_s``, or now when that is over."""
        heapq.heappush(
            self._heap, (max(time_s, self.now_s), next(self._order), callback, arguments)
        )

    def after(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> None:
        """Call ``callback(*arguments)`` in ``delay_s``, >= 0."""
        if delay_s < 0:
            raise ConfigError(f"a delay must be >= 0 s, got {delay_s}")
        self.at(self.now_s + delay_s, callback, *arguments)

    def run(
        self, until_s: float, *, done: Callable[[], bool] = lambda: False, check_every: int = 1
    ) -> None:
        """Run until ``until_s``, until nothing is left, or until ``done()``.

        Args:
            until_s: Virtual time.
            done: Asked after every ``check_every`` events.
            check_every: >= 1.
        """
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, callback, arguments = heapq.heappop(heap)
            self.num_events += 1
            callback(*arguments)
            if self.num_events % check_every == 0 and done():
                return
        if not done():
            self.now_s = max(self.now_s, until_s)
