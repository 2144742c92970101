"""From the name of a consistency model to its ledger. Called by the server for each new slot."""

from collections.abc import Callable

from bireme.consistency.asynchronous import AsyncLedger
from bireme.consistency.base import Ledger
from bireme.consistency.bounded import BoundedLedger
from bireme.consistency.sync import SyncLedger
from bireme.types.choices import Consistency

__all__ = ("LEDGERS", "new_ledger")

LEDGERS: dict[Consistency, Callable[[int], Ledger]] = {
    Consistency.SYNC: lambda _: SyncLedger(),
    Consistency.ASYNC: lambda _: AsyncLedger(),
    Consistency.BOUNDED: lambda bound: BoundedLedger(bound) if bound else SyncLedger(),
}
"""Makes a ledger of each model, given the staleness that it allows."""


def new_ledger(consistency: Consistency, staleness: int = 0) -> Ledger:
    """Return an empty ledger for one slot.

    Args:
        consistency: The model.
        staleness: For ``bounded``: rounds that a worker may be ahead of the slowest, >= 0.

    Example:
        >>> new_ledger(Consistency.ASYNC).version, type(new_ledger(Consistency.BOUNDED, 0)).__name__
        (0, 'SyncLedger')
    """
    return LEDGERS[consistency](staleness)
