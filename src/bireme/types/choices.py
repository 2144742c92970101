"""Closed choices that a job or a key makes, shared by settings, wire and core."""

from enum import StrEnum

__all__ = ("Consistency", "DeathPolicy", "Eviction", "Initialiser", "Layout")


class Consistency(StrEnum):
    """Which worker may run ahead of which, for the keys of one store."""

    SYNC = "sync"
    """A round at a time: every worker's push, then every worker's pull."""
    ASYNC = "async"
    """Each push is applied when it arrives."""
    BOUNDED = "bounded"
    """As async, but no worker gets more than ``staleness`` rounds ahead of the slowest."""


class DeathPolicy(StrEnum):
    """What a job does when one of its workers dies."""

    ABORT = "abort"
    """Every process ends within seconds, with a non-zero exit code and the dead one's name."""
    CONTINUE = "continue"
    """The others go on; sums are weighted over those who are left."""
    WAIT = "wait"
    """The others wait, within a limit, for a replacement that takes over the rank."""


class Layout(StrEnum):
    """How a value, or a push of it, is laid out."""

    DENSE = "dense"
    """All elements, in row-major order."""
    ROWS = "rows"
    """Some rows: their int64 numbers, then their elements."""
    TABLE = "table"
    """Of a key only: rows by any int64 id, made on first use; pushed and pulled as rows."""


class Initialiser(StrEnum):
    """What the rows of a table hold before their first update."""

    ZEROS = "zeros"
    UNIFORM = "uniform"
    """Evenly between minus and plus the scale."""
    NORMAL = "normal"
    """Around 0 with the scale as standard deviation."""


class Eviction(StrEnum):
    """What a table does when it has as many rows as it may have and another one is updated."""

    REFUSE = "refuse"
    """The push of the new row fails."""
    LRU = "lru"
    """The rows whose last update is the longest ago go."""
    LFU = "lfu"
    """The rows with the fewest updates go."""
