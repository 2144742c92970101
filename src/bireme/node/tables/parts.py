"""A part of a saved table: a safetensors file that is written and read some rows at a time.

Whatever the size of the table, memory for a few rows is enough on both ways. Called by
:mod:`bireme.node.tables.files`.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from bireme.errors import DataError
from bireme.update import atomic

__all__ = ("FORMAT", "PartReader", "PartWriter", "kind_of")

FORMAT = "bireme-table-1"

_NAMES = {"float32": "F32", "float64": "F64", "int64": "I64"}
_ALIGNMENT = 8

Columns = Mapping[str, npt.NDArray[Any]]


class PartWriter:
    """Writes a file under a temporary name.

    Args:
        path: The name that it will have.
        kinds: An empty array for each column, of its type and of the shape of its rows.
        num_rows: Rows that will be written.
        about: Plain data for the header.

    Raises:
        OSError: The file cannot be made.

    Guarantees:
        ``path`` appears when :meth:`finish` returns, whole and on the disk, or not at all.
    """

    def __init__(
        self, path: str, kinds: Columns, num_rows: int, about: Mapping[str, object]
    ) -> None:
        self._path, self._temporary = path, f"{path}.tmp"
        header, self._starts, size_bytes = _header(kinds, num_rows, about)
        self._file = open(self._temporary, "xb")
        try:
            self._file.write(header)
            self._data = self._file.tell()
            self._file.truncate(self._data + size_bytes)
        except BaseException:
            self.abandon()
            raise

    def write(self, begin: int, columns: Columns) -> None:
        """Write some rows, the first of which is row ``begin`` of the file."""
        for name, rows in columns.items():
            raw = np.ascontiguousarray(rows)
            width = raw.nbytes // len(raw) if len(raw) else 0
            self._file.seek(self._data + self._starts[name] + begin * width)
            self._file.write(raw.data)

    def finish(self) -> None:
        """Give the file its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)

    def abandon(self) -> None:
        """Remove what was written."""
        self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._temporary)


class PartReader:
    """Reads a file that a :class:`PartWriter` wrote.

    Args:
        path: The file.

    Raises:
        DataError: It is truncated, corrupt or something else.
        OSError: It cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with atomic.readable(path) as name:
                file: Any = safe_open(name, framework="numpy")
            about = json.loads((file.metadata() or {}).get("bireme", "null"))
            slices = {name: file.get_slice(name) for name in file.keys()}
        except (SafetensorError, ValueError) as error:
            raise DataError(f"{path} is no readable part of a table: {error}") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT or "ids" not in slices:
            raise DataError(f"{path} is no part of a table that save() wrote")
        self.about: dict[str, Any] = about
        self._slices = slices
        self.num_rows = int(slices["ids"].get_shape()[0])

    def kinds(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return element type and shape of a row of each column."""
        return {
            name: (str(each.get_dtype()), tuple(each.get_shape()[1:]))
            for name, each in self._slices.items()
        }

    def read(self, begin: int, end: int) -> dict[str, npt.NDArray[Any]]:
        """Return some rows of every column.

        Raises:
            DataError: They cannot be read.
        """
        end = min(end, self.num_rows)
        begin = min(begin, end)
        try:
            return {name: each[begin:end] for name, each in self._slices.items()}
        except (SafetensorError, ValueError) as error:
            raise DataError(f"{self.path} is damaged: {error}") from error


def kind_of(column: npt.NDArray[Any]) -> tuple[str, tuple[int, ...]]:
    """Return element type and shape of a row, as :meth:`PartReader.kinds` does."""
    return _NAMES[column.dtype.name], column.shape[1:]


def _header(
    kinds: Columns, num_rows: int, about: Mapping[str, object]
) -> tuple[bytes, dict[str, int], int]:
    entries: dict[str, object] = {
        "__metadata__": {"bireme": json.dumps({"format": FORMAT, **about})}
    }
    starts, offset = {}, 0
    for name, column in kinds.items():
        dtype, row = kind_of(column)
        size = num_rows * column.dtype.itemsize * int(np.prod(row, dtype=np.int64))
        entries[name] = {
            "dtype": dtype,
            "shape": [num_rows, *row],
            "data_offsets": [offset, offset + size],
        }
        starts[name] = offset
        offset += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, starts, offset
