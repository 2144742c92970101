"""How the shards of a global batch are cut among workers, for the canonical sum. Pure.

Read by `JobConfig`, which refuses what cannot be cut, and by the roles.
"""

from bireme.errors import ConfigError

__all__ = ("check_shards", "span_of")

_MOST_UNEQUAL = 1 << 16
"""Of more workers, all must have equally many shards: numbers from a peer must not take long."""


def span_of(rank: int, num_workers: int, num_shards: int) -> tuple[int, int]:
    """Return a worker's shards: the first, and one after the last.

    Example:
        >>> [span_of(rank, 2, 5) for rank in range(2)]
        [(0, 2), (2, 5)]
    """
    return rank * num_shards // num_workers, (rank + 1) * num_shards // num_workers


def check_shards(num_workers: int, num_shards: int) -> None:
    """Refuse shards of which some worker's are no whole subtree of the canonical sum.

    Raises:
        ConfigError: They are such; names numbers that are none.

    Example:
        >>> check_shards(3, 12)
        >>> check_shards(2, 3)
        Traceback (most recent call last):
        bireme.errors.ConfigError: 3 shards cannot be cut among 2 workers such that each has \
a whole part of the canonical sum; take 2, 4 or 8 shards (BIREME_SHARDS), or leave it out
    """
    each, rest = divmod(num_shards, num_workers)
    if each and not rest and not each & (each - 1):
        return
    if num_workers <= _MOST_UNEQUAL and all(
        _is_subtree(*span_of(rank, num_workers, num_shards), num_shards)
        for rank in range(num_workers)
    ):
        return
    fitting = [num_workers * factor for factor in (1, 2, 4)]
    raise ConfigError(
        f"{num_shards} shards cannot be cut among {num_workers} workers such that each has a whole "
        f"part of the canonical sum; take {fitting[0]}, {fitting[1]} or {fitting[2]} shards "
        "(BIREME_SHARDS), or leave it out"
    )


def _is_subtree(first: int, end: int, num_shards: int) -> bool:
    """Whether a power of two of shards begins at a multiple of it; the last one may end early."""
    if first >= end:
        return False
    width = 1 << (end - first - 1).bit_length()
    return first % width == 0 and min(first + width, num_shards) == end
