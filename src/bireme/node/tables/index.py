"""From row ids to positions: the index of a server's rows, and the deal of a worker's batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bireme.node.tables import hashing

__all__ = ("Deal", "Ints", "RowIndex", "deal")

Ints = npt.NDArray[np.int64]

_FEWEST_CELLS = 16


class RowIndex:
    """Row ids in the order in which they came, and where each one is.

    Guarantees:
        Takes 8 bytes for an id and 8 to 16 for its cells, whatever the ids are. Looking up costs
        no step of Python for a row.

    Example:
        >>> index = RowIndex()
        >>> index.add(np.array([7, -7, 7])).tolist(), index.find(np.array([8, -7])).tolist()
        ([0, 1, 0], [-1, 1])
    """

    def __init__(self) -> None:
        self._ids: Ints = np.empty(0, np.int64)
        self._cells = np.full(_FEWEST_CELLS, -1, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> Ints:
        """The ids by position; do not write, and do not keep beyond the next :meth:`add`."""
        return self._ids[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken."""
        return self._ids.nbytes + self._cells.nbytes

    def find(self, rows: Ints) -> Ints:
        """Return the position of each row, -1 for one that is not there."""
        out = np.empty(len(rows), np.int64)
        hashing.find(rows, self._ids, self._cells, out)
        return out

    def add(self, rows: Ints) -> Ints:
        """Return the position of each row; new ones get the next positions, in order."""
        self._make_room(self._count + len(rows))
        out = np.empty(len(rows), np.int64)
        self._count = int(hashing.find_or_add(rows, self._ids, self._count, self._cells, out))
        return out

    def keep(self, ids: Ints) -> None:
        """Hold exactly ``ids``, which differ from each other, at the positions they have there."""
        self._ids, self._count = ids.copy(), len(ids)
        self._cells = np.empty(_cells_for(self._count), np.int32)
        hashing.fill_cells(self._ids, self._count, self._cells)

    def _make_room(self, count: int) -> None:
        if count > len(self._ids):
            grown = np.empty(max(count, len(self._ids) * 5 // 4), np.int64)
            grown[: self._count] = self._ids[: self._count]
            self._ids = grown
        if 2 * count > len(self._cells):
            self._cells = np.empty(_cells_for(count), np.int32)
            hashing.fill_cells(self._ids, self._count, self._cells)


@dataclass(frozen=True, slots=True)
class Deal:
    """A batch of ids without duplicates, sorted by server."""

    ids: Ints
    """Each id once, those of server 0 first."""
    ends: Ints
    """Where the ids of each server end."""
    inverse: Ints
    """For each id of the batch its position in ``ids``."""

    def spans(self) -> list[tuple[int, int, int]]:
        """Return server, begin and end of every server's part of ``ids``, empty ones too."""
        begins = [0, *self.ends[:-1].tolist()]
        return list(zip(range(len(self.ends)), begins, self.ends.tolist(), strict=True))


def deal(rows: Ints, num_servers: int) -> Deal:
    """Merge duplicates and sort by server.

    Args:
        rows: Ids in any order, one-dimensional.
        num_servers: >= 1.

    Example:
        >>> parts = deal(np.array([5, 3, 5]), 2)
        >>> parts.ids[parts.inverse].tolist()
        [5, 3, 5]
    """
    index = RowIndex()
    found = index.add(rows)
    count = len(index)
    dealt, places = np.empty(count, np.int64), np.empty(count, np.int64)
    ends = np.zeros(num_servers, np.int64)
    hashing.deal(index.ids, count, num_servers, dealt, places, ends)
    return Deal(dealt, ends, places[found])


def _cells_for(count: int) -> Any:
    return 1 << max(4, (2 * count - 1).bit_length())
