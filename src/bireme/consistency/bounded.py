"""Bounded staleness: each contribution is applied on arrival, but the fast wait for the slow."""

from typing import ClassVar

from bireme.errors import ConfigError

__all__ = ("BoundedLedger",)


class BoundedLedger:
    """Applies every push at once; answers a worker that is too far ahead only later.

    A rank's clock is the number of its pushes to the slot. A push is applied when it arrives, and
    its answer is held back until the slowest awaited rank is at most ``staleness`` pushes behind.
    A pull waits likewise. So a worker that computes from a value has in it all of its own pushes,
    and all of everybody's but for the last ``staleness`` rounds.

    A staleness of 0 would leave nothing to be applied early: every reader waits for the whole
    round. That is :class:`~bireme.consistency.sync.SyncLedger`, which adds the round up first.

    Args:
        staleness: Rounds that a worker may be ahead of the slowest, >= 1.

    Raises:
        ConfigError: ``staleness`` is below 1.

    Guarantees:
        While every rank waits for its answers, the greatest clock is at most ``staleness`` + 1
        above the least of the awaited ranks. The slowest rank never waits.

    Example:
        >>> ledger = BoundedLedger(1)
        >>> ledger.follow(0b11)
        >>> for _ in range(2):
        ...     ledger.record(0); ledger.advance()
        >>> ledger.answered(0), ledger.visible(0, 1), ledger.visible(0, 2), ledger.missing(0b11)
        (1, True, False, 2)
        >>> ledger.record(1); ledger.advance(); ledger.answered(0), ledger.visible(0, 2)
        (2, True)

    Source:
        Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
        Server", NIPS 2013, section 3.
    """

    __slots__ = ("_awaited", "_marks", "_pending", "_staleness", "_standing", "version")

    pools: ClassVar[bool] = False
    needs_updater: ClassVar[bool] = True

    def __init__(self, staleness: int) -> None:
        if staleness < 1:
            raise ConfigError(f"a bounded ledger needs a staleness >= 1, got {staleness}")
        self.version = 0
        self._staleness = staleness
        self._awaited = 0
        self._marks: dict[int, int] = {}
        # Clock to the ranks that stand there, so that the slowest is found among few clocks.
        self._standing: dict[int, int] = {}
        self._pending = False

    def expected(self, rank: int) -> int:
        """Return the number that the next contribution of ``rank`` must carry."""
        return self._marks.get(rank, 0)

    def record(self, rank: int) -> None:
        """Note that the contribution ``expected(rank)`` was taken in."""
        clock, bit = self._marks.get(rank, 0), 1 << rank
        if clock:
            left = self._standing[clock] & ~bit
            if left:
                self._standing[clock] = left
            else:
                del self._standing[clock]
        self._marks[rank] = clock + 1
        self._standing[clock + 1] = self._standing.get(clock + 1, 0) | bit
        self._pending = True

    def ready(self, awaited: int) -> bool:
        """Return whether a contribution waits to be applied; that needs nobody else."""
        return self._pending

    def advance(self) -> None:
        """Note that the contribution has been applied."""
        self.version += 1
        self._pending = False

    def answered(self, rank: int) -> int:
        """Return the number of pushes of ``rank`` that the slowest is near enough to."""
        mark = self._marks.get(rank, 0)
        slowest, _ = self._slowest(self._awaited)
        return mark if slowest is None else min(mark, slowest + self._staleness)

    def visible(self, rank: int, minimum: int) -> bool:
        """Return whether the first ``minimum`` pushes of ``rank`` are in and not too far ahead."""
        return self.answered(rank) >= minimum

    def missing(self, awaited: int) -> int:
        """Return the slowest ranks, if somebody is too far ahead of them."""
        slowest, ranks = self._slowest(awaited)
        if slowest is None or max(self._standing, default=0) <= slowest + self._staleness:
            return 0
        return ranks

    def follow(self, awaited: int) -> None:
        """Note whose clocks count; ranks that are gone hold nobody up."""
        self._awaited = awaited

    def _slowest(self, awaited: int) -> tuple[int | None, int]:
        """Return the least clock among ``awaited``, and the ranks that stand there."""
        if not awaited:
            return None, 0
        begun = 0
        for ranks in self._standing.values():
            begun |= ranks
        if awaited & ~begun:
            return 0, awaited & ~begun
        slowest = min(clock for clock, ranks in self._standing.items() if ranks & awaited)
        return slowest, self._standing[slowest] & awaited
