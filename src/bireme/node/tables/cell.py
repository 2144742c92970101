"""What a server keeps for one table: its rows, its optimizer, its counters."""

import numpy as np
import torch

from bireme.errors import ConfigError, StateError
from bireme.node.memory import Held, bytes_of, tensor_over
from bireme.node.tables.index import Ints, RowIndex
from bireme.node.tables.partial import TablePartial
from bireme.node.tables.rows import TableRows
from bireme.types.choices import Eviction, Layout
from bireme.update import OptimizerSpec
from bireme.update.rowwise import RowOptimizer
from bireme.wire.messages import PushEntry
from bireme.wire.tables import TableSpec

__all__ = ("DTYPES", "TableCell")

DTYPES = {"float32": torch.float32, "float64": torch.float64}
"""Element types of a table."""

_ID_BYTES = 8


class TableCell:
    """One slot of a table.

    Args:
        store: Number by which commands name the table.
        slot: Key number and index.
        spec: The table.
    """

    def __init__(self, store: int, slot: tuple[int, int], spec: TableSpec) -> None:
        self.store = store
        self.slot = slot
        self.spec = spec
        self.dtype = DTYPES[spec.dtype.value]
        self.rows = TableRows(spec)
        self.version = 0
        """Rounds that the rows hold."""
        self.optimizer: RowOptimizer | None = None
        self._reserved = RowIndex()

    def check_push(self, entry: PushEntry, payload: memoryview, offset_bytes: int) -> None:
        """Raise unless a contribution can be taken in; changes nothing.

        Raises:
            ConfigError: It is of another form or size.
            StateError: There is no optimizer, or no room for its new rows.
        """
        name = f"table {self.slot[0]}.{self.slot[1]}"
        if entry.layout is not Layout.ROWS or entry.encoding != "raw":
            raise ConfigError(f"{name} takes raw rows, not a {entry.encoding} {entry.layout} push")
        expected = entry.num_rows * (_ID_BYTES + self.spec.dim * self.dtype.itemsize)
        if entry.payload_bytes != expected:
            raise ConfigError(
                f"{name}: {entry.num_rows} rows of {self.spec.dim} {self.spec.dtype} have "
                f"{expected} bytes, and this push {entry.payload_bytes}"
            )
        if self.optimizer is None:
            raise StateError(f"{name} has no optimizer; set_optimizer before the first push")
        if self.spec.max_rows and self.spec.eviction is Eviction.REFUSE:
            ids = tensor_over(payload, torch.int64, entry.num_rows, offset_bytes).numpy()
            self._refuse_surplus(name, ids)

    def first(
        self, entry: PushEntry, payload: memoryview, offset_bytes: int, weight: float
    ) -> TablePartial:
        """Return a contribution as a sum, and keep room for its rows."""
        partial = TablePartial.of(entry, payload, offset_bytes, weight, self.spec.dim, self.dtype)
        if self.spec.max_rows and self.spec.eviction is Eviction.REFUSE:
            self._reserved.add(partial.new_ids(self.rows.index))
        return partial

    def finish(
        self, total: TablePartial, numerator: float, denominator: float, version: int
    ) -> None:
        """Give the sum of a round to the optimizer.

        Raises:
            ConfigError: The optimizer or the memory failed; no row has changed.
        """
        assert self.optimizer is not None
        total.scale(numerator, denominator)
        try:
            self.rows.update(total, self.optimizer, version)
        except Exception as error:  # a class by import path may raise anything
            raise ConfigError(f"{self.optimizer.spec.title} failed: {error}") from error
        self.version = version
        if len(self._reserved):
            self._reserved = RowIndex()

    def read(self, payload: memoryview, num_ids: int) -> tuple[Held, int]:
        """Return a handle of some rows' bytes and their number."""
        ids = tensor_over(payload, torch.int64, num_ids).numpy()
        raw = torch.from_numpy(self.rows.read(ids)).view(-1)
        return Held(bytes_of(raw)), raw.nbytes

    def set_optimizer(self, spec: OptimizerSpec) -> None:
        """Use an optimizer; one of the same class keeps the state of all rows.

        Raises:
            ConfigError: It needs state that was never made; nothing has changed.
            UnsupportedError: It does not work row by row.
        """
        fresh = RowOptimizer(spec, self.spec.dim, self.dtype)
        old = self.optimizer
        same = old is not None and old.spec.name == fresh.spec.name
        self.rows.use(fresh, keep_state=same)
        self.optimizer = fresh

    def report(self) -> dict[str, object]:
        """Return counters, as plain data."""
        return {
            "key_id": self.slot[0],
            "rows": len(self.rows),
            "bytes": self.rows.nbytes,
            "evictions": self.rows.num_evicted,
            "max_rows": self.spec.max_rows,
        }

    def _refuse_surplus(self, name: str, ids: Ints) -> None:
        index = self.rows.index
        new = ids[index.find(ids) < 0]
        new = new[self._reserved.find(new) < 0]
        count = len(np.unique(new))
        if len(index) + len(self._reserved) + count > self.spec.max_rows:
            raise StateError(
                f"{name} holds {len(index)} rows and may hold {self.spec.max_rows}; {count} new "
                "ones do not fit: raise max_rows, or let rows go by eviction='lru' or 'lfu'"
            )
