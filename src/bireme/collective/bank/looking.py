"""Whether to look at the other ranks for a moment before sleeping.

To be woken costs tens of microseconds, in a virtual machine more; where every rank has a core of
its own the others are often done sooner. To look costs a core for that moment. So ranks look only
for a bounded time, only where cores are at hand, and only as long as it pays.
Called by the step clock (`steps.py`).
"""

__all__ = ("LOOK_S", "Looking")

LOOK_S = 50e-6
"""How long to look at most: about what a sleep costs, so that a look in vain at most doubles it."""
_MOST = 8
_REST = 32


class Looking:
    """How far looks have paid. One thread at a time.

    Args:
        limit_s: How long a look may take; 0: never look.

    Example:
        >>> looking = Looking(50e-6)
        >>> for _ in range(8): looking.ended(False)
        >>> [looking.limit_s() for _ in range(33)].index(50e-6)
        31
    """

    __slots__ = ("_credit", "_limit_s", "_rest")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._credit = _MOST if limit_s else 0
        self._rest = _REST

    def limit_s(self) -> float:
        """Return how long to look this time; 0: sleep at once."""
        if self._credit or not self._limit_s:
            return self._limit_s
        self._rest -= 1
        if self._rest:
            return 0.0
        self._rest = _REST
        return self._limit_s

    def ended(self, paid: bool) -> None:
        """Take note of a look: whether it made a sleep needless."""
        if paid:
            self._credit = min(self._credit + 1, _MOST)
        elif self._credit:
            self._credit -= 1
