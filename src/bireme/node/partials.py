"""Sums of some contributions to one round of one slot.

Half types are summed in float32, all others in their own type. A contribution is converted to
the type of the sum, multiplied by its weight with a rounding of its own, and then added; so the
bits do not depend on which of two summands came first.
"""

from collections.abc import Callable

import numpy as np
import torch

from bireme.compress.base import Payload
from bireme.node.encodings import HALF, RAW, SUM, decoder, element_type
from bireme.node.memory import Held, tensor_over
from bireme.transport.base import Buffer
from bireme.types.choices import Layout
from bireme.wire.messages import PushEntry

__all__ = (
    "SMALL_BYTES",
    "DensePartial",
    "RowsPartial",
    "SlotShape",
    "is_rows",
    "read_rows",
    "scale_",
    "sum_dtype",
    "weighed",
)

SMALL_BYTES = 64 << 10
"""Up to here it costs more to call torch than to compute, so small sums are numpy's."""

_HALF = (torch.float16, torch.bfloat16)
_PLAIN = (torch.float32, torch.float64, torch.int32, torch.int64)


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which values of ``dtype`` are summed.

    Example:
        >>> sum_dtype(torch.bfloat16), sum_dtype(torch.int8)
        (torch.float32, torch.int8)
    """
    return torch.float32 if dtype in _HALF else dtype


class SlotShape:
    """What stays the same of a slot for life.

    Args:
        dtype: Element type of its value.
        length: Elements.
        row_length: Elements of one row of the whole value.
    """

    __slots__ = (
        "dtype",
        "length",
        "num_rows",
        "row_length",
        "size_bytes",
        "small_as",
        "sum_dtype",
    )

    def __init__(self, dtype: torch.dtype, length: int, row_length: int) -> None:
        self.dtype = dtype
        self.length = length
        self.row_length = row_length
        self.num_rows = length // row_length if row_length else 0
        self.sum_dtype = sum_dtype(dtype)
        self.size_bytes = length * dtype.itemsize
        self.small_as = _numpy_type(self)


class DensePartial:
    """A sum over all elements of a slot, in memory from which it can be sent.

    Args:
        shape: The slot's.
        memory: As many bytes as the sum has; its content does not matter.
    """

    __slots__ = ("_small", "code", "memory", "shape", "tensor")

    def __init__(self, shape: SlotShape, memory: Held) -> None:
        self.code: str | None = None
        """The cast in which all contributions came, if they came in one."""
        self.shape = shape
        self.memory = memory
        self.tensor = tensor_over(memory.view, shape.sum_dtype, shape.length)
        self._small = None
        if shape.small_as is not None:
            self._small = np.frombuffer(memory.view, shape.small_as)

    @classmethod
    def alone(cls, shape: SlotShape, allocate: Callable[[int], Buffer]) -> "DensePartial":
        """Return a sum of anything in memory of its own."""
        size_bytes = shape.length * shape.sum_dtype.itemsize
        buffer = allocate(max(1, size_bytes))
        return cls(shape, Held(buffer.view[:size_bytes], buffer.release))

    def free(self) -> None:
        """Give the memory back."""
        self.memory.release()

    def scale(self, numerator: float, denominator: float) -> None:
        """Multiply by ``numerator``, then divide by ``denominator``; 1.0 changes no bit."""
        scale_(self.tensor, numerator, denominator)

    def take(self, entry: PushEntry, payload: memoryview, offset_bytes: int, weight: float) -> None:
        """Become this contribution."""
        if self._small is not None and weight == 1.0 and entry.encoding == RAW:
            self.code = None
            self.memory.view[:] = payload[offset_bytes : offset_bytes + self.shape.size_bytes]
            return
        self.code = entry.encoding if entry.encoding in HALF else None
        self._fold(entry, payload, offset_bytes, weight, accumulate=False)

    def add(self, entry: PushEntry, payload: memoryview, offset_bytes: int, weight: float) -> None:
        """Add this contribution."""
        small, shape = self._small, self.shape
        if small is not None and weight == 1.0 and entry.encoding == RAW:
            self.code = None
            small += np.frombuffer(payload, shape.small_as, shape.length, offset_bytes)
            return
        self.code = self.code if self.code == entry.encoding else None
        self._fold(entry, payload, offset_bytes, weight, accumulate=True)

    def _fold(
        self,
        entry: PushEntry,
        payload: memoryview,
        offset_bytes: int,
        weight: float,
        *,
        accumulate: bool,
    ) -> None:
        if entry.encoding not in (RAW, SUM):
            self._fold_encoded(entry, payload, offset_bytes, weight, accumulate=accumulate)
            return
        dtype = self.shape.dtype if entry.encoding == RAW else self.shape.sum_dtype
        source = tensor_over(payload, dtype, self.shape.length, offset_bytes)
        if weight != 1.0:
            source = weighed(source.to(self.tensor.dtype), weight)
        if accumulate:
            self.tensor.add_(source)
        else:
            self.tensor.copy_(source)

    def _fold_encoded(
        self,
        entry: PushEntry,
        payload: memoryview,
        offset_bytes: int,
        weight: float,
        *,
        accumulate: bool,
    ) -> None:
        element = element_type(entry.encoding)
        data = tensor_over(payload, element, entry.payload_bytes // element.itemsize, offset_bytes)
        code = Payload(data, self.tensor.shape, self.tensor.dtype)
        if weight == 1.0:
            decoder(entry.encoding).decompress(code, self.tensor, accumulate=accumulate)
            return
        decoded = weighed(decoder(entry.encoding).decompress(code), weight)
        if accumulate:
            self.tensor.add_(decoded)
        else:
            self.tensor.copy_(decoded)


class RowsPartial:
    """A sum over some rows of a slot: their numbers, ascending, and their elements."""

    __slots__ = ("ids", "rows", "shape")

    def __init__(self, ids: torch.Tensor, rows: torch.Tensor, shape: SlotShape) -> None:
        self.ids = ids
        self.rows = rows
        self.shape = shape

    def scale(self, numerator: float, denominator: float) -> None:
        """As :meth:`DensePartial.scale`."""
        scale_(self.rows, numerator, denominator)

    def free(self) -> None:
        """Nothing to give back: rows are ordinary tensors."""

    @classmethod
    def of(
        cls,
        entry: PushEntry,
        payload: memoryview,
        offset_bytes: int,
        weight: float,
        shape: SlotShape,
    ) -> "RowsPartial":
        """Return this contribution; a row that it names twice counts twice."""
        ids, rows = read_rows(entry, payload, offset_bytes, shape)
        rows = rows.to(shape.sum_dtype, copy=True)
        if weight != 1.0:
            rows = weighed(rows, weight)
        return _summed(ids.clone(), rows, shape)

    def plus(self, other: "RowsPartial") -> "RowsPartial":
        """Return the sum of both."""
        ids = torch.cat([self.ids, other.ids])
        return _summed(ids, torch.cat([self.rows, other.rows]), self.shape)

    def add_to(self, dense: torch.Tensor) -> None:
        """Add the rows to a whole slot."""
        dense.view(self.shape.num_rows, self.shape.row_length).index_add_(0, self.ids, self.rows)


def read_rows(
    entry: PushEntry, payload: memoryview, offset_bytes: int, shape: SlotShape
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the row numbers and the rows of a row-sparse contribution, without a copy."""
    ids = tensor_over(payload, torch.int64, entry.num_rows, offset_bytes)
    start = offset_bytes + ids.nbytes
    rows = tensor_over(payload, shape.dtype, entry.num_rows * shape.row_length, start)
    return ids, rows.view(entry.num_rows, shape.row_length)


def weighed(values: torch.Tensor, weight: float) -> torch.Tensor:
    """Return ``values`` times ``weight``; integers are rounded towards zero."""
    if values.dtype.is_floating_point:
        return values * weight
    return (values.to(torch.float64) * weight).to(values.dtype)


def scale_(values: torch.Tensor, numerator: float, denominator: float) -> None:
    """Multiply and divide ``values`` in place; integers are rounded towards zero."""
    if numerator == denominator == 1.0:
        return
    if values.dtype.is_floating_point:
        if numerator != 1.0:
            values.mul_(numerator)
        if denominator != 1.0:
            values.div_(denominator)
    else:
        values.copy_(values.to(torch.float64) * numerator / denominator)


def _numpy_type(shape: SlotShape) -> np.dtype[np.generic] | None:
    """Return the type in which numpy adds to a small sum; ``None`` where torch does."""
    if not 0 < shape.size_bytes <= SMALL_BYTES or shape.dtype not in _PLAIN:
        return None
    return np.dtype(str(shape.dtype).removeprefix("torch."))


def is_rows(entry: PushEntry) -> bool:
    """Return whether a contribution is row-sparse."""
    return entry.layout is Layout.ROWS


def _summed(ids: torch.Tensor, rows: torch.Tensor, shape: SlotShape) -> RowsPartial:
    unique, places = torch.unique(ids, sorted=True, return_inverse=True)
    if len(unique) == len(ids):
        order = torch.empty_like(places)
        order[places] = torch.arange(len(places))
        return RowsPartial(unique, rows[order], shape)
    total = torch.zeros((len(unique), rows.shape[1]), dtype=rows.dtype)
    return RowsPartial(unique, total.index_add_(0, places, rows), shape)
