"""What an all-reduce works on: one array, or many that count as one without lying in one place.

Many tensors go straight from their own memory into shared memory and back; to pack them into a
buffer first and to unpack them at the end would touch every byte four times more.
Called by `reducing.py`.
"""

import sys
from bisect import bisect_right
from collections.abc import Sequence
from ctypes import c_char
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bireme.collective.bank.elements import Array, Elements, Reduction

__all__ = ("Data", "Places", "Strewn", "Whole", "places_of")

Places = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""How many elements each tensor has, and where its source and its target are."""

_Span = tuple[memoryview, int, int]

# One type for all lengths: to make one takes longer than to copy a tensor.
_Onwards: Any = c_char * sys.maxsize


class Data(Protocol):
    """Elements of one type, numbered through."""

    def __len__(self) -> int:
        """Return how many there are."""

    def write(self, area: Array, start: int, stop: int) -> None:
        """Copy elements to shared memory."""

    def fold(self, sources: list[Array], me: int, out: Array, op: Reduction, start: int) -> None:
        """Reduce ``sources`` in their order into ``out``, which is none of them.

        Args:
            sources: One for each rank; the own elements from ``start`` on take the place of that
                at ``me``.
            me: This rank.
            out: As long as each of them.
            op: What to compute.
            start: Which element comes first.
        """

    def read(self, area: Array, start: int, stop: int) -> None:
        """Take results from shared memory."""

    def blank(self) -> Array:
        """Return an array for all results, which `settle` takes."""

    def settle(self, results: Array) -> None:
        """Take what `blank` returned, filled."""


class Whole:
    """One array, reduced in place. See `Data`."""

    __slots__ = ("_array", "_copy", "_elements")

    def __init__(self, elements: Elements, array: Array) -> None:
        self._array = array
        self._elements = elements
        self._copy = elements.copy

    def __len__(self) -> int:
        """See `Data`."""
        return len(self._array)

    def write(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        self._copy(area, self._array[start:stop])

    def fold(self, sources: list[Array], me: int, out: Array, op: Reduction, start: int) -> None:
        """See `Data`."""
        sources[me] = self._array[start : start + len(out)]
        self._elements.fold(sources, out, op)

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

    May be used again for other tensors in the same places. It does not keep them alive.

    Args:
        elements: How to handle them.
        places: Of `places_of` them.
        before: What elements are multiplied by before they are reduced.
        after: What results are multiplied by. Factors other than 1: float32 and float64 only.

    Example:
        >>> import torch
        >>> from bireme.collective.bank.elements import elements_of
        >>> tensors, area = [torch.zeros(2), torch.ones(3)], np.zeros(3, np.float32)
        >>> places = places_of(tensors, tensors)
        >>> data = Strewn(elements_of(torch.float32), places, before=2.0)
        >>> data.write(area, 1, 4); len(data), area.tolist()
        (5, [0.0, 2.0, 2.0])
    """

    __slots__ = ("_after", "_before", "_elements", "_own", "_scratch", "_sources", "_targets")

    def __init__(
        self, elements: Elements, places: Places, before: float = 1.0, after: float = 1.0
    ) -> None:
        lengths, sources, targets = places
        item = elements.item_bytes
        self._elements = elements
        self._sources = _Spans(lengths, sources, item)
        self._targets = self._sources if targets == sources else _Spans(lengths, targets, item)
        self._before = before
        self._after = after
        self._own: dict[tuple[int, int], list[tuple[Array, int, int]]] = {}
        self._scratch: Array = None

    def __len__(self) -> int:
        """See `Data`."""
        return len(self._sources)

    def write(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        room = _bytes_of(area)
        for piece, first, last in self._sources.of(start, stop):
            room[first:last] = piece
        if self._before != 1.0:
            np.multiply(area, self._before, out=area)

    def fold(self, sources: list[Array], me: int, out: Array, op: Reduction, start: int) -> None:
        """See `Data`."""
        combine = self._elements.combiner(op)
        stop = start + len(out)
        if combine is None or self._before != 1.0 or len(sources) == 1:
            sources[me] = self._room(stop - start)
            self.write(sources[me], start, stop)
            self._elements.fold(sources, out, op)
            return
        # Where they lie: to bring them together first would touch each twice more.
        for own, first, last in self._views(start, stop):
            total = out[first:last]
            parts = [each[first:last] for each in sources]
            parts[me] = own
            combine(parts[0], parts[1], out=total)
            for part in parts[2:]:
                combine(total, part, out=total)

    def read(self, area: Array, start: int, stop: int) -> None:
        """See `Data`."""
        if self._after != 1.0:
            area = np.multiply(area, self._after, out=self._room(stop - start))
        room = _bytes_of(area)
        for piece, first, last in self._targets.of(start, stop):
            piece[:] = room[first:last]

    def blank(self) -> Array:
        """See `Data`."""
        return self._room(len(self))

    def settle(self, results: Array) -> None:
        """See `Data`."""
        self.read(results, 0, len(self))

    def _room(self, length: int) -> Array:
        if self._scratch is None or len(self._scratch) < length:
            size_bytes = max(length, 1) * self._elements.item_bytes
            self._scratch = self._elements.view(np.empty(size_bytes, np.uint8))
        return self._scratch[:length]

    def _views(self, start: int, stop: int) -> list[tuple[Array, int, int]]:
        """Return the pieces of a run as arrays, and where in the run each begins and ends."""
        found = self._own.get((start, stop))
        if found is None:
            item, view = self._elements.item_bytes, self._elements.view
            found = self._own[start, stop] = [
                (view(np.frombuffer(piece, np.uint8)), first // item, last // item)
                for piece, first, last in self._sources.of(start, stop)
            ]
        return found


class _Spans:
    """Cuts runs where tensors end, each run once.

    What it gives are views of memory and not arrays: to copy one takes a tenth of a microsecond.
    """

    __slots__ = ("_addresses", "_found", "_item", "_starts", "_whole")

    def __init__(self, lengths: Sequence[int], addresses: Sequence[int], item_bytes: int) -> None:
        self._starts = [0, *accumulate(lengths)]
        self._addresses = addresses
        self._item = item_bytes
        self._whole: dict[int, memoryview] = {}
        self._found: dict[tuple[int, int], list[_Span]] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    def of(self, start: int, stop: int) -> list[_Span]:
        """Return the pieces of a run, and at which of its bytes each begins and ends."""
        found = self._found.get((start, stop))
        if found is None:
            found = self._found[start, stop] = self._cut(start, stop)
        return found

    def _cut(self, start: int, stop: int) -> list[_Span]:
        starts, item = self._starts, self._item
        index = bisect_right(starts, start) - 1
        spans = []
        at = start
        while at < stop:
            first, end = starts[index], min(starts[index + 1], stop)
            if end > at:
                piece = self._tensor(index)[(at - first) * item : (end - first) * item]
                spans.append((piece, (at - start) * item, (end - start) * item))
            at = end
            index += 1
        return spans

    def _tensor(self, index: int) -> memoryview:
        whole = self._whole.get(index)
        if whole is None:
            size_bytes = (self._starts[index + 1] - self._starts[index]) * self._item
            raw: Any = _Onwards.from_address(self._addresses[index])
            whole = self._whole[index] = np.frombuffer(raw, np.uint8, size_bytes).data
        return whole


def places_of(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Places:
    """Return what tells tensors from others, as far as memory is concerned.

    Args:
        sources: Contiguous tensors of one type.
        targets: Where the results go: as many, of the same lengths; may be the sources.
    """
    lengths, places = tuple(map(Tensor.numel, sources)), tuple(map(Tensor.data_ptr, sources))
    if targets is sources:
        return lengths, places, places
    return lengths, places, tuple(map(Tensor.data_ptr, targets))


def _bytes_of(area: Array) -> memoryview:
    if isinstance(area, Tensor):
        area = area.view(torch.uint8).numpy()
    room: memoryview = area.view(np.uint8).data
    return room
