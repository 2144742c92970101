"""Since when operations wait for ranks that have not submitted them. PURE.

Called by the coordinator; a stall is told at a definite time, and again at every such interval.
"""

from dataclasses import dataclass, field

from bireme.core.negotiation.messages import Key

__all__ = ("Overdue", "Waits")


@dataclass(slots=True)
class _Batch:
    """Slots that began to wait together."""

    since_s: float
    mask: int
    next_s: float


@dataclass(slots=True)
class _Name:
    """A name without a slot that waits."""

    since_s: float
    next_s: float


@dataclass(slots=True)
class Overdue:
    """What has waited too long."""

    slots: list[tuple[int, float]] = field(default_factory=list)
    """Slots, and for how long they have waited."""
    keys: list[tuple[Key, float]] = field(default_factory=list)
    """Names without a slot, and for how long they have waited."""
    longest_s: float = 0.0


class Waits:
    """Remembers when each operation began to wait.

    Args:
        interval_s: After how long, and how often, a wait is told; 0: never.

    Example:
        >>> waits = Waits(60.0)
        >>> waits.slots(0b10, now_s=5.0)
        >>> waits.deadline_s()
        65.0
        >>> waits.overdue(now_s=65.0).longest_s
        60.0
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._batches: list[_Batch] = []
        self._names: dict[Key, _Name] = {}
        self._mask = 0

    def slots(self, mask: int, now_s: float) -> None:
        """Note which slots wait now; those that did not before have waited since now."""
        ended = self._mask & ~mask
        if ended:
            self.ended(ended)
        fresh = mask & ~self._mask
        if fresh:
            self._batches.append(_Batch(now_s, fresh, now_s + self._interval_s))
            self._mask |= fresh

    def ended(self, mask: int) -> None:
        """Note that slots do not wait any more, or begin anew."""
        self._mask &= ~mask
        for batch in self._batches:
            batch.mask &= ~mask
        self._batches = [batch for batch in self._batches if batch.mask]

    def name(self, key: Key, now_s: float) -> None:
        """Note that a name without a slot waits."""
        if key not in self._names:
            self._names[key] = _Name(now_s, now_s + self._interval_s)

    def name_ended(self, key: Key) -> None:
        """Note that a name does not wait any more."""
        self._names.pop(key, None)

    def deadline_s(self) -> float | None:
        """Return when `overdue` has something to say next, or None."""
        if not self._interval_s:
            return None
        times_s = [batch.next_s for batch in self._batches]
        times_s += (name.next_s for name in self._names.values())
        return min(times_s, default=None)

    def overdue(self, now_s: float) -> Overdue:
        """Return what has waited a whole interval since it was told last."""
        found = Overdue()
        if not self._interval_s:
            return found
        for batch in self._batches:
            if batch.next_s <= now_s:
                batch.next_s = now_s + self._interval_s
                waited_s = now_s - batch.since_s
                mask, slot = batch.mask, 0
                while mask:
                    if mask & 1:
                        found.slots.append((slot, waited_s))
                    mask >>= 1
                    slot += 1
                found.longest_s = max(found.longest_s, waited_s)
        for key, name in self._names.items():
            if name.next_s <= now_s:
                name.next_s = now_s + self._interval_s
                waited_s = now_s - name.since_s
                found.keys.append((key, waited_s))
                found.longest_s = max(found.longest_s, waited_s)
        return found
