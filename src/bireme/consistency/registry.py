"""From the name of a consistency model to its ledger. Called by the server for each new slot."""

from bireme.consistency.asynchronous import AsyncLedger
from bireme.consistency.base import Ledger
from bireme.consistency.sync import SyncLedger
from bireme.types.choices import Consistency

__all__ = ("LEDGERS", "new_ledger")

LEDGERS: dict[Consistency, type[SyncLedger] | type[AsyncLedger]] = {
    Consistency.SYNC: SyncLedger,
    Consistency.ASYNC: AsyncLedger,
}
"""The class of each model."""


def new_ledger(consistency: Consistency) -> Ledger:
    """Return an empty ledger for one slot.

    Example:
        >>> new_ledger(Consistency.ASYNC).version
        0
    """
    return LEDGERS[consistency]()
