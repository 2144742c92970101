"""Asynchronous: each contribution is applied when it arrives."""

from typing import ClassVar

__all__ = ("AsyncLedger",)


class AsyncLedger:
    """Applies and acknowledges every push at once, each exactly once.

    One high-water mark per rank tells a repeated push from a new one.

    Example:
        >>> ledger = AsyncLedger()
        >>> ledger.record(1); ledger.ready(0b11)
        True
        >>> ledger.advance(); ledger.expected(0), ledger.expected(1), ledger.version
        (0, 1, 1)

    Source:
        MXNet 1.9 ``src/kvstore/kvstore_dist_server.h`` (``sync_mode`` off); the marks are Li et
        al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014, 4.1.
    """

    __slots__ = ("_marks", "_pending", "version")

    pools: ClassVar[bool] = False
    needs_updater: ClassVar[bool] = True

    def __init__(self) -> None:
        self.version = 0
        self._marks: dict[int, int] = {}
        self._pending = False

    def expected(self, rank: int) -> int:
        """Return the number that the next contribution of ``rank`` must carry."""
        return self._marks.get(rank, 0)

    def record(self, rank: int) -> None:
        """Note that the contribution ``expected(rank)`` was taken in."""
        self._marks[rank] = self._marks.get(rank, 0) + 1
        self._pending = True

    def ready(self, awaited: int) -> bool:
        """Return whether a contribution waits to be applied; nobody else is waited for."""
        return self._pending

    def advance(self) -> None:
        """Note that the contribution has been applied."""
        self.version += 1
        self._pending = False

    def answered(self, rank: int) -> int:
        """Return how many pushes of ``rank`` are applied: all that were taken in."""
        return self._marks.get(rank, 0)

    def visible(self, rank: int, minimum: int) -> bool:
        """Return whether the first ``minimum`` pushes of ``rank`` itself are applied."""
        return self._marks.get(rank, 0) >= minimum

    def missing(self, awaited: int) -> int:
        """Return no rank: nothing ever waits for another worker."""
        return 0

    def follow(self, awaited: int) -> None:
        """Do nothing: nobody is awaited."""
