"""What an all-reduce works on: one array, or many that count as one without lying in one place.

Many tensors go straight from their own memory into shared memory and back; to pack them into a
buffer first and to unpack them at the end would touch every byte four times more.
Called by `reducing.py`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from ctypes import memmove
from itertools import accumulate
from typing import Protocol

import numpy as np
from torch import Tensor

from bireme.collective.bank.elements import Array, Elements

__all__ = ("Data", "Strewn", "Whole")


class Data(Protocol):
    """Elements of one type, numbered through."""

    def __len__(self) -> int:
        """Return how many there are."""

    def write(self, area: Array, start: int, stop: int) -> None:
        """Copy elements to shared memory."""

    def own(self, start: int, stop: int) -> Array:
        """Return elements; good until the next call."""

    def read(self, area: Array, start: int, stop: int) -> None:
        """Take results from shared memory."""

    def blank(self) -> Array:
        """Return an array for all results, which `settle` takes."""

    def settle(self, results: Array) -> None:
        """Take what `blank` returned, filled."""


class Whole:
    """One array, reduced in place. See `Data`."""

    __slots__ = ("_array", "_copy")

    def __init__(self, elements: Elements, array: Array) -> None:
        self._array = array
        self._copy = elements.copy

    def __len__(self) -> int:
        """See `Data`."""
        return len(self._array)

    def write(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        self._copy(area, self._array[start:stop])

    def own(self, start: int, stop: int) -> Array:
        """See `Data`."""
        return self._array[start:stop]

    def read(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        self._copy(self._array[start:stop], area)

    def blank(self) -> Array:
        """See `Data`."""
        return self._array

    def settle(self, results: Array) -> None:
        """See `Data`."""


class Strewn:
    """Many tensors. See `Data`.

    Args:
        elements: How to handle them.
        sources: Contiguous tensors of one type.
        targets: Where the results go: as many, of the same lengths; may be the sources.
        before: What elements are multiplied by before they are reduced.
        after: What results are multiplied by. Factors other than 1: float32 and float64 only.

    Example:
        >>> import torch
        >>> from bireme.collective.bank.elements import elements_of
        >>> tensors = [torch.zeros(2), torch.ones(3)]
        >>> data = Strewn(elements_of(torch.float32), tensors, tensors, before=2.0)
        >>> len(data), data.own(1, 4).tolist()
        (5, [0.0, 2.0, 2.0])
    """

    __slots__ = (
        "_after",
        "_before",
        "_elements",
        "_item",
        "_scratch",
        "_sources",
        "_starts",
        "_targets",
    )

    def __init__(
        self,
        elements: Elements,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        before: float = 1.0,
        after: float = 1.0,
    ) -> None:
        self._elements = elements
        self._item = elements.item_bytes
        self._sources = [each.data_ptr() for each in sources]
        self._targets = (
            self._sources if targets is sources else [each.data_ptr() for each in targets]
        )
        self._starts = [0, *accumulate([each.numel() for each in sources])]
        self._before = before
        self._after = after
        self._scratch: Array = None

    def __len__(self) -> int:
        """See `Data`."""
        return self._starts[-1]

    def write(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        at = _address(area)
        for address, size_bytes in self._spans(self._sources, start, stop):
            memmove(at, address, size_bytes)
            at += size_bytes
        if self._before != 1.0:
            np.multiply(area, self._before, out=area)

    def own(self, start: int, stop: int) -> Array:
        """See `Data`."""
        room = self._room(stop - start)
        self.write(room, start, stop)
        return room

    def read(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        if self._after != 1.0:
            area = np.multiply(area, self._after, out=self._room(stop - start))
        at = _address(area)
        for address, size_bytes in self._spans(self._targets, start, stop):
            memmove(address, at, size_bytes)
            at += size_bytes

    def blank(self) -> Array:
        """See `Data`."""
        return self._room(len(self))

    def settle(self, results: Array) -> None:
        """See `Data`."""
        self.read(results, 0, len(self))

    def _room(self, length: int) -> Array:
        if self._scratch is None or len(self._scratch) < length:
            size_bytes = max(length, 1) * self._item
            self._scratch = self._elements.view(np.empty(size_bytes, np.uint8))
        return self._scratch[:length]

    def _spans(self, addresses: Sequence[int], start: int, stop: int) -> list[tuple[int, int]]:
        """Cut a run where tensors end; return each piece's address and size in bytes."""
        starts, item = self._starts, self._item
        index = bisect_right(starts, start) - 1
        spans = []
        at = start
        while at < stop:
            first, end = starts[index], starts[index + 1]
            if end > stop:
                end = stop
            if end > at:
                spans.append((addresses[index] + (at - first) * item, (end - at) * item))
            at = end
            index += 1
        return spans


def _address(area: Array) -> int:
    if isinstance(area, Tensor):
        return area.data_ptr()
    address: int = area.__array_interface__["data"][0]
    return address
