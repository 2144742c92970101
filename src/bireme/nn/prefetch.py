"""Batches that were asked for before they are needed."""

import torch

from bireme.kvstore.tables import Batch, Table

__all__ = ("Prefetched",)

_MOST = 16


class Prefetched:
    """Remembers what was asked for, and gives it out when the same ids are needed.

    Args:
        table: Where rows come from.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._batches: list[tuple[torch.Tensor, int, Batch]] = []

    def ask(self, ids: torch.Tensor, ahead: int) -> None:
        """Ask for rows as they are after ``ahead`` more steps; the oldest of 16 is forgotten."""
        batch = self._table.begin(ids, ahead)
        self._batches = [*self._batches, (ids.clone(), self._table.num_loads, batch)][-_MOST:]

    def take(self, ids: torch.Tensor) -> Batch:
        """Return rows that are as recent as if they were asked for now, and ask if need be."""
        table = self._table
        for number, (asked, load, batch) in enumerate(self._batches):
            fits = batch.step == table.num_steps and load == table.num_loads
            if fits and not batch.failed and torch.equal(asked, ids):
                del self._batches[number]
                return batch
        self._batches = [each for each in self._batches if each[2].step >= table.num_steps]
        return table.begin(ids)
