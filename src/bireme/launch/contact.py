"""Whether the other end of a connection is there. Pure; both ends of an agent's talk ask it."""

__all__ = ("Contact",)

_PULSE_S = 5.0
_LONG_PAUSE_S = 15.0
"""Whoever asks, asks more often than this while it runs."""


class Contact:
    """Counts how long the other end has been silent, and says when to give it a sign of life.

    A connection whose other machine has lost its power or its network does not end: nothing comes,
    that is all. Time in which this process itself did not run (it was stopped, or the machine
    slept) is not counted, since the signs of that time wait unread.

    Args:
        limit_s: How long the other end may be silent, counted from when it was first heard.

    Example:
        >>> contact = Contact(limit_s=60)
        >>> contact.heard(0.0)
        >>> [contact.is_lost(float(now_s)) for now_s in (4, 8, 3600)]
        [False, False, False]
        >>> any(contact.is_lost(float(now_s)) for now_s in range(3600, 3668, 4))
        True
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._heard_s: float | None = None
        self._looked_s = 0.0
        self._pulse_s = 0.0

    def heard(self, now_s: float) -> None:
        """Note that something came."""
        self._heard_s = now_s

    def is_lost(self, now_s: float) -> bool:
        """Return whether the other end has been silent for too long; ask every 10 s at least."""
        paused_s, self._looked_s = now_s - self._looked_s, now_s
        if self._heard_s is None:
            return False
        if paused_s > _LONG_PAUSE_S:
            self._heard_s = now_s
        return now_s - self._heard_s > self.limit_s

    def owes_pulse(self, now_s: float) -> bool:
        """Return whether it is time for a sign of life; it counts as given then."""
        if now_s < self._pulse_s:
            return False
        self._pulse_s = now_s + _PULSE_S
        return True
