"""What a distributed store may be told when it is made, beyond its type. Checks it all.

Called by :mod:`bireme.kvstore.factory` before anything starts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bireme.consistency.local import LocalSteps
from bireme.errors import ConfigError
from bireme.types.choices import Consistency

__all__ = ("DIST_TYPES", "DistOptions", "dist_options")

DIST_TYPES: dict[str, tuple[Consistency, bool]] = {
    "dist": (Consistency.SYNC, False),
    "dist_sync": (Consistency.SYNC, False),
    "dist_async": (Consistency.ASYNC, False),
    "dist_bounded": (Consistency.BOUNDED, False),
    "dist_sync_device": (Consistency.SYNC, True),
    "dist_device_sync": (Consistency.SYNC, True),
    "dist_async_device": (Consistency.ASYNC, True),
    "dist_device_async": (Consistency.ASYNC, True),
    "dist_bounded_device": (Consistency.BOUNDED, True),
    "dist_local": (Consistency.SYNC, False),
    "dist_local_device": (Consistency.SYNC, True),
}
"""Each type's consistency between workers, and whether a worker sums on its devices. Between
the exchanges of local steps, ``LocalSteps`` may say otherwise."""

_LOCAL = ("dist_local", "dist_local_device")
_MOST_STALENESS = 1 << 20

_TAKEN: dict[Consistency, tuple[str, ...]] = {
    Consistency.SYNC: (),
    Consistency.ASYNC: ("delay_compensation",),
    Consistency.BOUNDED: ("staleness", "delay_compensation"),
}


@dataclass(frozen=True, slots=True)
class DistOptions:
    """How a distributed store differs from another of its type."""

    staleness: int = 0
    """Of ``dist_bounded``: rounds that a worker may be ahead of the slowest."""
    delay_compensation: float = 0.0
    """Where pushes are applied one by one: strength of the correction of late gradients."""
    local: LocalSteps | None = None
    """Of ``dist_local``: when workers meet, and what happens then."""

    def consistency(self, kind: str) -> Consistency:
        """Return the consistency between the workers of a store of type ``kind``."""
        if self.local is None:
            return DIST_TYPES[kind][0]
        if self.local.staleness is None:
            return Consistency.ASYNC
        return Consistency.BOUNDED if self.local.staleness else Consistency.SYNC


def dist_options(kind: str, given: Mapping[str, object], *, staleness: int) -> DistOptions:
    """Return the checked options of a store.

    Args:
        kind: A type of :data:`DIST_TYPES`.
        given: What the caller of ``create`` wrote.
        staleness: The job's, for a caller who names none.

    Raises:
        ConfigError: The type does not take an option, or its value is out of range.

    Example:
        >>> dist_options("dist_bounded", {"staleness": 3}, staleness=2)
        DistOptions(staleness=3, delay_compensation=0.0, local=None)
    """
    consistency, _ = DIST_TYPES[kind]
    taken = ("local",) if kind in _LOCAL else _TAKEN[consistency]
    unknown = [name for name in given if name not in taken]
    if unknown:
        what = f"takes only {', '.join(taken)}" if taken else "takes no options"
        raise ConfigError(f"a {kind!r} store {what}, got {', '.join(unknown)}")
    if kind in _LOCAL:
        return _local(given.get("local"))
    bound = 0
    if consistency is Consistency.BOUNDED:
        chosen = given.get("staleness")
        bound = staleness if chosen is None else _staleness(chosen)
    compensation = _compensation(given.get("delay_compensation"))
    if compensation and consistency is Consistency.BOUNDED and not bound:
        raise ConfigError(
            "with staleness 0 no gradient is late, so delay_compensation means nothing"
        )
    return DistOptions(bound, compensation)


def _staleness(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_STALENESS:
        raise ConfigError(
            f"staleness must be an integer >= 0 and <= {_MOST_STALENESS}, the rounds that a worker "
            f"may be ahead of the slowest; got {value!r:.60}"
        )
    return value


def _local(value: object) -> DistOptions:
    steps = LocalSteps() if value is None else value
    if not isinstance(steps, LocalSteps):
        raise ConfigError(f"local must be a bireme.LocalSteps(every=...), got {value!r:.60}")
    return DistOptions(steps.staleness or 0, local=steps)


def _compensation(value: object) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(
            f"delay_compensation must be a finite number >= 0, such as 0.04; got {value!r:.60}"
        )
    return float(value)
