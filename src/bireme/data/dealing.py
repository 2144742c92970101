"""How a sequence is dealt to parts, like cards: who gets place 0, 1, 2, ...

Pure. Called by :mod:`bireme.data.sharding`, which deals an epoch's shuffled samples. Dealing
(rather than cutting into blocks) keeps what all parts have used so far together at the front,
so that the rest of an epoch can be dealt anew to another number of parts.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bireme.errors import ConfigError

__all__ = ("Deal",)

_LONGEST_CYCLE = 65536


class Deal:
    """A fixed, repeating order in which parts receive one sample each.

    Args:
        shares: One integer >= 1 per part; ``[3, 1]`` gives the first part three of every four
            samples. Equal shares deal in turn: 0, 1, 2, 0, 1, 2, ...

    Raises:
        ConfigError: ``shares`` is empty, holds something else than integers >= 1, or sums to
            more than 65,536 after division by their greatest common divisor.

    Guarantees:
        After any number m of samples, part i has ``floor(m * share_i / sum)`` or
        ``ceil(m * share_i / sum)`` of them.

    Example:
        >>> Deal([3, 1]).cycle.tolist(), Deal([3, 1]).sizes(10)
        ([0, 0, 0, 1], (8, 2))

    Source:
        The quota method of M. L. Balinski and H. P. Young, "The Quota Method of Apportionment",
        American Mathematical Monthly 82 (1975), which stays within quota at every m.
    """

    def __init__(self, shares: Sequence[int]) -> None:
        self.shares = _checked(shares)
        self.cycle: npt.NDArray[np.int64] = _cycle(self.shares)
        """Shape (sum of shares,): the part that receives each place; it repeats for ever."""
        self._slots = [np.flatnonzero(self.cycle == part) for part in range(len(self.shares))]

    def sizes(self, count: int) -> tuple[int, ...]:
        """Return how many of the first ``count`` places each part receives."""
        rounds, rest = divmod(count, len(self.cycle))
        return tuple(
            rounds * share + int(np.searchsorted(slots, rest))
            for share, slots in zip(self.shares, self._slots, strict=True)
        )

    def whole(self, count: int) -> int:
        """Return the greatest number of places <= ``count`` that is a whole number of cycles."""
        return count - count % len(self.cycle)

    def places(self, part: int, count: int) -> npt.NDArray[np.int64]:
        """Return the places < ``count`` that ``part`` receives, ascending."""
        starts = np.arange(0, count, len(self.cycle), dtype=np.int64)
        places = (starts[:, None] + self._slots[part]).ravel()
        return places[: np.searchsorted(places, count)]

    def left(self, positions: Sequence[int], count: int) -> npt.NDArray[np.int64]:
        """Return the places < ``count`` still unused, ascending.

        Args:
            positions: How many of its places each part has used.
            count: Places that were dealt.
        """
        unused = np.zeros(count, dtype=np.bool_)
        for part, position in enumerate(positions):
            unused[self.places(part, count)[position:]] = True
        return np.flatnonzero(unused)

    def in_step(self, part: int, position: int, count: int) -> tuple[int, ...] | None:
        """Return where all parts are when ``part`` is at ``position`` and all advance in step.

        In step means that after a whole number of turns t part i has used ``t * share_i``
        places, or all of its places if it has fewer.

        Returns:
            One position per part; ``None`` when ``position`` does not tell: it is no multiple
            of the part's share, or this part is at its end while another may be short of its.
        """
        sizes = self.sizes(count)
        if position == sizes[part]:
            needs = [-(-size // share) for size, share in zip(sizes, self.shares, strict=True)]
            return sizes if needs[part] == max(needs) else None
        turns, odd = divmod(position, self.shares[part])
        if odd:
            return None
        return tuple(
            min(turns * share, size) for share, size in zip(self.shares, sizes, strict=True)
        )


def _checked(shares: Sequence[int]) -> tuple[int, ...]:
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, int) or share < 1:
            raise ConfigError(f"shares must be integers >= 1, got {share!r} in {list(shares)!r}")
    if not shares:
        raise ConfigError("shares must not be empty: give one integer >= 1 per part")
    divisor = math.gcd(*shares)
    total = sum(shares) // divisor
    if total > _LONGEST_CYCLE and len(set(shares)) > 1:
        raise ConfigError(
            f"shares sum to {total}, more than {_LONGEST_CYCLE}; round them to smaller numbers"
        )
    return tuple(share // divisor for share in shares)


def _cycle(shares: tuple[int, ...]) -> npt.NDArray[np.int64]:
    if set(shares) == {1}:
        return np.arange(len(shares), dtype=np.int64)
    total = sum(shares)
    wanted = np.array(shares, dtype=np.int64)
    dealt = np.zeros(len(shares), dtype=np.int64)
    cycle = np.empty(total, dtype=np.int64)
    for place in range(total):
        below_quota = dealt * total < (place + 1) * wanted
        part = int(np.argmax(np.where(below_quota, wanted / (dealt + 1), -1.0)))
        cycle[place] = part
        dealt[part] += 1
    return cycle
