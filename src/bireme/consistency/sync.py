"""Synchronous: one round at a time, of one contribution from every worker."""

from typing import ClassVar

__all__ = ("SyncLedger",)


class SyncLedger:
    """Waits for every awaited worker, then applies the sum of their contributions.

    A worker's push number is the round that it counts for, and a worker is at most one round
    ahead of the slowest: its push is acknowledged when the round is complete.

    Args:
        version: Rounds that are complete.
        seen: The ranks that have contributed to the open round.

    Example:
        >>> ledger = SyncLedger()
        >>> ledger.record(0); ledger.ready(0b11), ledger.expected(0), ledger.expected(1)
        (False, 1, 0)
        >>> ledger.record(1); ledger.ready(0b11)
        True
        >>> ledger.advance(); ledger.version, ledger.answered(0)
        (1, 1)

    Source:
        MXNet 1.9 ``src/kvstore/kvstore_dist_server.h`` (``sync_mode``: the server acknowledges
        when all workers have pushed), counting senders where it counts requests.
    """

    __slots__ = ("seen", "version")

    pools: ClassVar[bool] = True
    needs_updater: ClassVar[bool] = False

    def __init__(self, version: int = 0, seen: int = 0) -> None:
        self.version = version
        self.seen = seen
        """The ranks that have contributed to the open round."""

    def expected(self, rank: int) -> int:
        """Return the number that the next contribution of ``rank`` must carry."""
        return self.version + (self.seen >> rank & 1)

    def record(self, rank: int) -> None:
        """Note that the contribution ``expected(rank)`` was taken in."""
        self.seen |= 1 << rank

    def ready(self, awaited: int) -> bool:
        """Return whether every awaited rank has contributed, and at least one did."""
        return self.seen != 0 and not awaited & ~self.seen

    def advance(self) -> None:
        """Note that the sum has been applied; the next round is open."""
        self.version += 1
        self.seen = 0

    def answered(self, rank: int) -> int:
        """Return the number of complete rounds, the same for every rank."""
        return self.version

    def visible(self, rank: int, minimum: int) -> bool:
        """Return whether ``minimum`` rounds are complete."""
        return self.version >= minimum

    def missing(self, awaited: int) -> int:
        """Return the awaited ranks without a contribution to the open round."""
        return awaited & ~self.seen

    def follow(self, awaited: int) -> None:
        """Do nothing: ``ready`` and ``missing`` are told."""
