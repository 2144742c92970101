"""The rows of one table on one server: values, optimizer state, and which of them go."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bireme.errors import ConfigError
from bireme.node.tables.columns import Column
from bireme.node.tables.index import Ints, RowIndex
from bireme.node.tables.initial import first_rows
from bireme.node.tables.partial import TablePartial
from bireme.types.choices import Eviction
from bireme.update.rowwise import RowOptimizer, RowState
from bireme.wire.tables import TableSpec

__all__ = ("TableRows",)

_EVICTED_SHARE = 64
_ROUND_BITS = 40
_MOST_COUNTED = 1 << 22
_NO_ROUND = -(1 << 62)


class TableRows:
    """Rows that were updated at least once; all others are what the initialiser says.

    Args:
        spec: The table.

    Guarantees:
        Reading changes nothing and takes no memory. An update changes all its rows or, when it
        raises, none. Memory is in proportion to the rows that are held.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.index = RowIndex()
        self.num_evicted = 0
        """Rows that had to go so far."""
        self._values = Column(np.dtype(spec.dtype.value), spec.dim)
        self._tensors: dict[str, Column] = {}
        self._numbers: dict[str, Column] = {}
        self._updates = Column(np.int64, 0)
        """How often the optimizer has updated each row; 0 where it has no state."""
        self._last = Column(np.int64, 0)
        """The round of each row's last update."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken by rows, their state and their index."""
        return self.index.nbytes + sum(column.nbytes for column in self._columns())

    def read(self, ids: Ints) -> npt.NDArray[Any]:
        """Return a copy of some rows, in the order of ``ids``."""
        places = self.index.find(ids)
        missing = places < 0
        if not missing.any():
            return self._values.rows[places]
        rows = np.empty((len(ids), self.spec.dim), np.dtype(self.spec.dtype.value))
        rows[~missing] = self._values.rows[places[~missing]]
        rows[missing] = first_rows(self.spec, ids[missing])
        return rows

    def use(self, optimizer: RowOptimizer, *, keep_state: bool) -> None:
        """Make room for the state of an optimizer.

        Args:
            optimizer: The one whose state rows have from now on.
            keep_state: It is the one from before, with other numbers; else all state goes.

        Raises:
            ConfigError: State that it needs was never made; nothing has changed then.
        """
        wanted = {*optimizer.tensors, *optimizer.numbers}
        lacking = wanted - {*self._tensors, *self._numbers}
        if keep_state and len(self) and lacking and optimizer.spec.name != "SGD":
            raise ConfigError(
                f"{optimizer.spec.title} cannot take up {sorted(lacking)} while rows "
                "have state; set another optimizer first, which drops the state"
            )
        if not keep_state:
            self._updates.rows[:] = 0
            self._tensors, self._numbers = {}, {}
        dtype = np.dtype(self.spec.dtype.value)
        self._tensors = {
            name: self._tensors.get(name) or self._made(Column(dtype, self.spec.dim))
            for name in optimizer.tensors
        }
        self._numbers = {
            name: self._numbers.get(name) or self._made(Column(np.float64, 0))
            for name in optimizer.numbers
        }

    def update(self, total: TablePartial, optimizer: RowOptimizer, version: int) -> None:
        """Give the sum of a round to the optimizer, then let rows go that are too many."""
        ids = total.ids
        if len(ids) == 0:
            return
        rows = torch.from_numpy(self.read(ids))
        places = self.index.find(ids)
        state = self._gathered(places)
        optimizer.step(rows, total.rows, state)
        self._scatter(self._add(ids), rows, state, version)
        self._evict(version)

    def columns(self, begin: int, end: int) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the rows at some positions, for a file: all of them by name."""
        found = {name: column.rows[begin:end].copy() for name, column in self._named()}
        return {"ids": self.index.ids[begin:end].copy(), **found}

    def described(self) -> dict[str, npt.NDArray[Any]]:
        """Return an empty array for each name of :meth:`columns`, of its type and shape."""
        return self.columns(0, 0)

    def take(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add rows as :meth:`columns` gave them, whose ids are not here yet.

        Optimizer state that is not among them leaves the rows without any.

        Raises:
            ConfigError: They are more than the table may hold.
        """
        ids = np.ascontiguousarray(columns["ids"])
        places = self._add(ids)
        for name, column in self._named():
            if name in columns:
                column.rows[places] = columns[name]
        if not all(f"state.{name}" in columns for name in (*self._tensors, *self._numbers)):
            self._updates.rows[places] = 0
        if self.spec.eviction is Eviction.REFUSE and 0 < self.spec.max_rows < len(self):
            raise ConfigError(
                f"the file holds more rows than the {self.spec.max_rows} that server "
                f"{self.spec.index} may hold; raise max_rows"
            )
        self._evict(_NO_ROUND)

    def _named(self) -> Iterator[tuple[str, Column]]:
        yield "values", self._values
        yield "updates", self._updates
        yield "last", self._last
        for name, column in (*self._tensors.items(), *self._numbers.items()):
            yield f"state.{name}", column

    def _columns(self) -> Iterator[Column]:
        return (column for _, column in self._named())

    def _made(self, column: Column) -> Column:
        column.resize(len(self))
        return column

    def _add(self, ids: Ints) -> Ints:
        places = self.index.add(ids)
        for column in self._columns():
            column.resize(len(self.index))
        return places

    def _gathered(self, places: Ints) -> RowState:
        """Copy the state of rows; new ones, at -1, are fresh."""
        new = places < 0
        safe = np.where(new, 0, places)
        count = len(places)
        if len(self) == 0:
            fresh = torch.ones(count, dtype=torch.bool)
            tensors = {
                name: torch.from_numpy(np.zeros((count, self.spec.dim), each.rows.dtype))
                for name, each in self._tensors.items()
            }
            numbers = {name: torch.zeros(count, dtype=torch.float64) for name in self._numbers}
            return RowState(tensors, numbers, fresh)
        fresh = torch.from_numpy(new | (self._updates.rows[safe] == 0))
        return RowState(
            {name: torch.from_numpy(each.rows[safe]) for name, each in self._tensors.items()},
            {name: torch.from_numpy(each.rows[safe]) for name, each in self._numbers.items()},
            fresh,
        )

    def _scatter(self, places: Ints, rows: torch.Tensor, state: RowState, version: int) -> None:
        self._values.rows[places] = rows.numpy()
        for name, each in state.tensors.items():
            self._tensors[name].rows[places] = each.numpy()
        for name, each in state.numbers.items():
            self._numbers[name].rows[places] = each.numpy()
        self._updates.rows[places] += 1
        self._last.rows[places] = version

    def _evict(self, version: int) -> None:
        """Let rows go until the limit holds, and some more so that it is seldom done."""
        limit, count = self.spec.max_rows, len(self)
        if not limit or count <= limit or self.spec.eviction is Eviction.REFUSE:
            return
        left = limit - limit // _EVICTED_SHARE
        going = self._chosen(count - left, version)
        holes = np.flatnonzero(going[:left])
        movers = left + np.flatnonzero(~going[left:])
        ids = self.index.ids.copy()
        ids[holes] = ids[movers]
        for each in self._columns():
            each.shrink(left, holes, movers)
        self.index.keep(ids[:left])
        self.num_evicted += count - left

    def _chosen(self, count: int, version: int) -> npt.NDArray[np.bool_]:
        """Return which ``count`` rows go; those of the newest round only after all others."""
        last = self._last.rows
        order = last.copy()
        if self.spec.eviction is Eviction.LFU:
            seldom = np.minimum(self._updates.rows, _MOST_COUNTED)
            order = (seldom << _ROUND_BITS) + (last - last.min())
        order[last == version] = np.iinfo(np.int64).max
        least = np.partition(order, count - 1)[count - 1]
        going: npt.NDArray[np.bool_] = order < least
        # Ties go by id, so that two runs of a job let the same rows go.
        ties = np.flatnonzero(order == least)
        lacking = count - int(going.sum())
        first = np.argpartition(self.index.ids[ties], lacking - 1)[:lacking]
        going[ties[first]] = True
        return going
