"""Which slots each rank has submitted and not been told to run. PURE. Used by the coordinator."""

from collections.abc import Container, Iterable

__all__ = ("Pending",)


class Pending:
    """One mask of slots for each rank.

    Args:
        size: How many ranks.

    Example:
        >>> pending = Pending(2)
        >>> pending.add(0, 0b11)
        >>> pending.add(1, 0b10)
        >>> pending.common(0b111, (0, 1), but=()), pending.union((0, 1))
        (2, 3)
    """

    def __init__(self, size: int) -> None:
        self._masks = [0] * size

    def add(self, rank: int, mask: int) -> None:
        """Note that a rank has submitted slots."""
        self._masks[rank] |= mask

    def take(self, rank: int, bit: int) -> bool:
        """Forget one slot of a rank; return whether it had submitted it."""
        had = self._masks[rank] & bit
        self._masks[rank] ^= had
        return bool(had)

    def clear(self, ranks: Iterable[int], mask: int) -> None:
        """Forget slots."""
        for rank in ranks:
            self._masks[rank] &= ~mask

    def ranks_of(self, slot: int) -> list[int]:
        """Return the ranks that have submitted a slot."""
        return [rank for rank, mask in enumerate(self._masks) if mask >> slot & 1]

    def elsewhere(self, slot: int, but_rank: int) -> bool:
        """Return whether another rank has submitted a slot."""
        return any(mask >> slot & 1 for rank, mask in enumerate(self._masks) if rank != but_rank)

    def union(self, ranks: Iterable[int] | None = None) -> int:
        """Return the slots that any of these ranks has submitted; None: of all."""
        found = 0
        for mask in self._masks if ranks is None else (self._masks[rank] for rank in ranks):
            found |= mask
        return found

    def common(self, mask: int, ranks: Iterable[int], but: Container[int]) -> int:
        """Return the part of ``mask`` that all of these ranks, ``but`` for some, have submitted."""
        for rank in ranks:
            if rank not in but:
                mask &= self._masks[rank]
        return mask
