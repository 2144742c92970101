"""What a distributed store may be told when it is made, beyond its type. Checks it all.

Called by :mod:`bireme.kvstore.factory` before anything starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
}
"""Each type's consistency between workers, and whether a worker sums on its devices."""

_MOST_STALENESS = 1 << 20

_TAKEN: dict[Consistency, tuple[str, ...]] = {
    Consistency.SYNC: (),
    Consistency.ASYNC: (),
    Consistency.BOUNDED: ("staleness",),
}


@dataclass(frozen=True, slots=True)
class DistOptions:
    """How a distributed store differs from another of its type."""

    staleness: int = 0
    """Of ``dist_bounded``: rounds that a worker may be ahead of the slowest."""


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
        DistOptions(staleness=3)
    """
    consistency, _ = DIST_TYPES[kind]
    taken = _TAKEN[consistency]
    unknown = [name for name in given if name not in taken]
    if unknown:
        what = f"takes only {', '.join(taken)}" if taken else "takes no options"
        raise ConfigError(f"a {kind!r} store {what}, got {', '.join(unknown)}")
    if consistency is not Consistency.BOUNDED:
        return DistOptions()
    chosen = given.get("staleness")
    return DistOptions(staleness if chosen is None else _staleness(chosen))


def _staleness(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_STALENESS:
        raise ConfigError(
            f"staleness must be an integer >= 0 and <= {_MOST_STALENESS}, the rounds that a worker "
            f"may be ahead of the slowest; got {value!r:.60}"
        )
    return value
