"""Arrays that grow with the rows of a table."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ("Column",)

_FEWEST_ROWS = 256


class Column:
    """One value, or one vector, for each row.

    Memory grows by a quarter at a time, in place where the system can move pages, so that it
    stays in proportion to the rows and is not doubled while it grows.

    Args:
        dtype: Element type.
        width: Elements for each row; 0 for a plain number.

    Example:
        >>> column = Column(np.float64, 0)
        >>> column.resize(3); column.rows[:] = 7.0; column.resize(4); column.rows.tolist()
        [7.0, 7.0, 7.0, 0.0]
    """

    __slots__ = ("_count", "_flat", "_width")

    def __init__(self, dtype: npt.DTypeLike, width: int) -> None:
        self._flat: npt.NDArray[Any] = np.zeros(0, dtype)
        self._width = width
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken."""
        return self._flat.nbytes

    @property
    def rows(self) -> npt.NDArray[Any]:
        """A view of the rows, valid until the next :meth:`resize`."""
        flat = self._flat[: self._count * max(1, self._width)]
        return flat.reshape(self._count, self._width) if self._width else flat

    @property
    def tensor(self) -> torch.Tensor:
        """The same as a tensor, valid until the next :meth:`resize`."""
        return torch.from_numpy(self.rows)

    def resize(self, count: int) -> None:
        """Hold ``count`` rows; new ones are zero."""
        each = max(1, self._width)
        if count * each > len(self._flat):
            room = max(count, self._count * 5 // 4, _FEWEST_ROWS)
            # Nothing looks into the memory beyond a call, as the callers of `rows` promise.
            self._flat.resize(room * each, refcheck=False)
        elif count > self._count:
            self._flat[self._count * each : count * each] = 0
        self._count = count

    def shrink(self, count: int, holes: Any, movers: Any) -> None:
        """Keep ``count`` rows, after the rows at ``movers`` have taken the places ``holes``."""
        rows = self.rows
        rows[holes] = rows[movers]
        del rows
        self._count = count
        each = max(1, self._width)
        if 2 * count * each < len(self._flat):
            self._flat.resize(max(count, _FEWEST_ROWS) * each, refcheck=False)
