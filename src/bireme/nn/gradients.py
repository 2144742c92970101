"""Gradients of rows between a backward pass and the step that pushes them."""

import threading
from collections.abc import Sequence

import numpy as np
import torch

from bireme.kvstore.tables import Table
from bireme.node.tables.index import Deal, deal

__all__ = ("Collected", "merged")

Part = tuple[Deal, torch.Tensor]
"""Ids without duplicates, and a gradient for each."""


class Collected:
    """What the backward passes through one layer have left since its last step.

    Args:
        table: The layer's.

    Guarantees:
        A batch whose output is dropped without a backward pass leaves nothing behind.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._parts: list[Part] = []
        self._lock = threading.Lock()
        self.has_open_step = False
        """Whether rows were looked up for training since the last step."""

    def watch(self, rows: torch.Tensor, parts: Deal) -> None:
        """Make ``rows`` a leaf whose gradient is taken when it has been computed."""
        self.has_open_step = True
        count = len(parts.ids)

        def take(leaf: torch.Tensor) -> None:
            assert leaf.grad is not None
            # Behind the rows there may be one of padding, whose gradient is nobody's.
            grad, leaf.grad = leaf.grad[:count], None
            with self._lock:
                self._parts.append((parts, grad.to("cpu")))

        rows.requires_grad_()
        rows.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]

    def take(self) -> Part:
        """Return the sum of all gradients, and begin anew."""
        return merged(self._table, [(self.take_parts(), 1.0)])

    def take_parts(self) -> list[Part]:
        """Return the gradients one by one, and begin anew."""
        with self._lock:
            parts, self._parts = self._parts, []
        self.has_open_step = False
        return parts

    def clear(self) -> None:
        """Forget the gradients."""
        with self._lock:
            self._parts = []


def merged(table: Table, weighed: Sequence[tuple[Sequence[Part], float]]) -> Part:
    """Return the sum of gradients, each times its weight (skipped for 1.0).

    Args:
        table: Theirs.
        weighed: Gradients and their weight.
    """
    every = [
        (parts, grad if weight == 1.0 else grad * weight)
        for each, weight in weighed
        for parts, grad in each
    ]
    if len(every) == 1:
        return every[0]
    ids = np.concatenate([np.empty(0, np.int64), *(parts.ids for parts, _ in every)])
    together = deal(ids, table.num_servers)
    total = torch.zeros(len(together.ids), table.options.dim, dtype=table.options.dtype)
    if every:
        inverse = torch.from_numpy(together.inverse)
        total.index_add_(0, inverse, torch.cat([grad for _, grad in every]))
    return together, total
