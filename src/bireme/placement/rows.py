"""Which server holds a row of a table, by its id alone.

Pure: the reference for the compiled loops in ``node.tables.hashing``, which must agree.
"""

import hashlib

from bireme.errors import ConfigError

__all__ = ("home", "mixed", "stream_of")

_MASK = 2**64 - 1


def mixed(row: int) -> int:
    """Return 64 bits that look random, one-to-one for all int64 ids.

    Example:
        >>> mixed(0) != mixed(1), 0 <= mixed(-(2**63)) < 2**64
        (True, True)

    Source:
        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
        with the constants of Stafford's variant 13 (SplitMix64).
    """
    bits = (row + 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & _MASK
    return bits ^ bits >> 31


def home(row: int, num_servers: int) -> int:
    """Return the rank of the server that holds ``row``.

    Args:
        row: Any int64.
        num_servers: >= 1.

    Raises:
        ConfigError: There is no server.

    Guarantees:
        Ids that come without any order, and ids in any arithmetic order, are spread evenly.

    Example:
        >>> [home(row, 3) for row in range(8)]
        [2, 1, 1, 0, 1, 1, 2, 1]
    """
    if num_servers < 1:
        raise ConfigError("a table needs at least one server")
    return (mixed(row) >> 32) * num_servers >> 32


def stream_of(name: str) -> int:
    """Return the number, below 2**63, that sets the random rows of a table apart by its name.

    Example:
        >>> stream_of("user") != stream_of("item")
        True
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
