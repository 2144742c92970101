"""Sums of some contributions to one round of a table: rows by id."""

import numpy as np
import torch

from bireme.node.memory import tensor_over
from bireme.node.partials import scale_, weighed
from bireme.node.tables.index import Ints, RowIndex
from bireme.wire.messages import PushEntry

__all__ = ("TablePartial",)


class TablePartial:
    """A sum over rows; the row of an id that two summands name is added, others are copied.

    Args:
        index: The ids; taken over.
        rows: Their elements, of shape ``(n, dim)``; taken over.
    """

    __slots__ = ("_index", "rows")

    def __init__(self, index: RowIndex, rows: torch.Tensor) -> None:
        self._index = index
        self.rows = rows

    @property
    def ids(self) -> Ints:
        """The ids of :attr:`rows`."""
        return self._index.ids

    @classmethod
    def of(
        cls,
        entry: PushEntry,
        payload: memoryview,
        offset_bytes: int,
        weight: float,
        dim: int,
        dtype: torch.dtype,
    ) -> "TablePartial":
        """Return a contribution times ``weight``; a row that it names twice counts twice."""
        ids = tensor_over(payload, torch.int64, entry.num_rows, offset_bytes)
        start = offset_bytes + ids.nbytes
        flat = tensor_over(payload, dtype, entry.num_rows * dim, start)
        rows = flat.view(entry.num_rows, dim)
        rows = rows.clone() if weight == 1.0 else weighed(rows, weight)
        index = RowIndex()
        places = index.add(ids.numpy())
        if len(index) < entry.num_rows:
            total = torch.zeros((len(index), dim), dtype=dtype)
            rows = total.index_add_(0, torch.from_numpy(places), rows)
        return cls(index, rows)

    def plus(self, other: "TablePartial") -> "TablePartial":
        """Return the sum of both, which are used up."""
        if len(self.ids) < len(other.ids):
            return other.plus(self)
        known = len(self.ids)
        places = torch.from_numpy(self._index.add(other.ids))
        old = places < known
        self.rows.index_add_(0, places[old], other.rows[old])
        if bool(old.all()):
            return self
        # New ids got the places behind the known ones, in their order.
        return TablePartial(self._index, torch.cat([self.rows, other.rows[~old]]))

    def scale(self, numerator: float, denominator: float) -> None:
        """Multiply by ``numerator``, then divide by ``denominator``; 1.0 changes no bit."""
        scale_(self.rows, numerator, denominator)

    def new_ids(self, known: RowIndex) -> Ints:
        """Return the ids that are not in ``known``."""
        ids = self.ids
        return np.ascontiguousarray(ids[known.find(ids) < 0])
