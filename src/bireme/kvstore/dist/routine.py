"""Pushes and pulls of the same keys again and again: checked, cut and bundled once for all.

A training step exchanges the same list of keys every time, so what does not depend on the tensors
is prepared when the list is first seen. What remains for each step is to look whether the tensors
still fit. Called by :mod:`bireme.kvstore.dist.store` before its general way.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch

from bireme.core.bunches import Bunch, Dealer
from bireme.kvstore.calls import Push
from bireme.kvstore.dist.entry import DistEntry
from bireme.kvstore.reduce.overlap import are_disjoint
from bireme.node.landing import Landing
from bireme.node.parcels import Parcel, raw_view
from bireme.transport.base import Buffer
from bireme.update.layout import lies_plain

__all__ = ("Allocate", "Exchange", "Routine", "Routines")

_MOST_ROUTINES = 256
_STRIDED = torch.strided

Allocate = Callable[[int], Buffer]

Sending = list[tuple[Bunch, Parcel]]

Exchange = tuple[list[tuple[Bunch, Parcel]], Landing]
"""What leaves, and where the results go."""


class _Memory:
    """Views of the slots of one list of tensors, kept for as long as the tensors stay in place.

    Args:
        layouts: Type and shape of each tensor.
        cuts: For each tensor, where its slots go: bunch, position in the bunch, offset and size.
        sizes: Number of slots of each bunch.
    """

    def __init__(
        self,
        layouts: Sequence[tuple[torch.dtype, torch.Size]],
        cuts: Sequence[Sequence[tuple[int, int, int, int]]],
        sizes: Sequence[int],
    ) -> None:
        self._layouts = layouts
        self._cuts = cuts
        nothing = memoryview(b"")
        self.views: list[list[memoryview]] = [[nothing] * size for size in sizes]
        """Never changed: tensors that move get new lists."""
        self._addresses: list[int] = [0] * len(cuts)

    def is_of(self, tensors: Sequence[object]) -> TypeGuard[Sequence[torch.Tensor]]:
        """Return whether the views are those of ``tensors``."""
        try:
            for tensor, (dtype, shape), address in zip(
                tensors, self._layouts, self._addresses, strict=True
            ):
                # No tensor of another device, or without strides, has this address.
                if not (
                    isinstance(tensor, torch.Tensor)
                    and tensor.data_ptr() == address
                    and tensor.dtype is dtype
                    and tensor.shape == shape
                    and tensor.is_contiguous()
                    and not tensor.is_neg()
                ):
                    return False
        except (RuntimeError, ValueError):
            return False
        return True

    def fits(self, tensors: Sequence[object]) -> TypeGuard[Sequence[torch.Tensor]]:
        """Return whether ``tensors`` are of the right number and kind."""
        if len(tensors) != len(self._layouts):
            return False
        for tensor, (dtype, shape) in zip(tensors, self._layouts, strict=True):
            if not (
                isinstance(tensor, torch.Tensor)
                and tensor.dtype is dtype
                and tensor.layout is _STRIDED
                and tensor.shape == shape
                and tensor.is_cpu
                and lies_plain(tensor)
            ):
                return False
        return True

    def look_at(self, tensors: Sequence[torch.Tensor]) -> None:
        """Make the views those of ``tensors``, which fit."""
        addresses = [tensor.data_ptr() for tensor in tensors]
        views = [list(each) for each in self.views]
        for cuts, address, before in zip(self._cuts, addresses, self._addresses, strict=True):
            if address != before:
                for bunch, position, offset_bytes, size_bytes in cuts:
                    view = raw_view(address + offset_bytes, size_bytes)
                    views[bunch][position] = view
        self._addresses, self.views = addresses, views


class Routine:
    """Exchanges one list of keys: dense, uncompressed, one CPU tensor for each.

    Args:
        entries: The keys, each once; none has row-sparse values or no elements.
        bundle_bytes: Slots for one server travel together in messages of about this size.
    """

    def __init__(self, entries: Sequence[DistEntry], bundle_bytes: int = 1 << 20) -> None:
        self.pushes: list[Push[DistEntry]] = [Push(entry, [], False) for entry in entries]
        """One for each key, without values."""
        layouts = [(entry.layout.dtype, entry.layout.shape) for entry in entries]
        self._bunches, cuts = _bundled(entries, bundle_bytes)
        sizes = [len(bunch.slots) for bunch in self._bunches]
        self._sent, self._received = (_Memory(layouts, cuts, sizes) for _ in range(2))
        self._targets: dict[Bunch, list[memoryview]] = {}
        self._lock = threading.Lock()
        self._is_apart = False
        self._copied, self._pulled = (_Memory(layouts, cuts, sizes) for _ in range(2))
        self._places: dict[Bunch, list[memoryview]] = {}
        self._is_pull_apart = False

    def exchange(self, values: Sequence[object], outs: Sequence[object]) -> Exchange | None:
        """Return what to do, or ``None`` if these tensors need the store's general way.

        Args:
            values: One for each key; anything.
            outs: Where the results go, likewise.
        """
        sent, received = self._sent, self._received
        with self._lock:
            if not (sent.is_of(values) and received.is_of(outs)):
                if not (sent.fits(values) and received.fits(outs)):
                    return None
                sent.look_at(values)
                received.look_at(outs)
                self._targets = dict(zip(self._bunches, received.views, strict=True))
                self._is_apart = are_disjoint(_together(values, outs))
            if not self._is_apart:
                return None
            parcels = []
            for bunch, views in zip(self._bunches, sent.views, strict=True):
                parcels.append((bunch, Parcel(views, bunch.size_bytes, values)))
            return parcels, Landing(self._targets, outs)

    def push(self, values: Sequence[object], allocate: Allocate) -> Sending | None:
        """Copy what is pushed, and return it; ``None`` if it needs the store's general way.

        Args:
            values: One for each key; anything. May change afterwards.
            allocate: Makes memory that frames can be sent from.
        """
        copied = self._copied
        with self._lock:
            if not copied.is_of(values):
                if not copied.fits(values):
                    return None
                copied.look_at(values)
            contents = copied.views
            return [
                (bunch, _filled(allocate(bunch.size_bytes), views, bunch.size_bytes))
                for bunch, views in zip(self._bunches, contents, strict=True)
            ]

    def pull(self, outs: Sequence[object]) -> Landing | None:
        """Return where values go, or ``None`` if these need the store's general way.

        Args:
            outs: One for each key; anything.
        """
        pulled = self._pulled
        with self._lock:
            if not pulled.is_of(outs):
                if not pulled.fits(outs):
                    return None
                pulled.look_at(outs)
                self._places = dict(zip(self._bunches, pulled.views, strict=True))
                self._is_pull_apart = are_disjoint(list(outs))
            return Landing(self._places, outs) if self._is_pull_apart else None


class Routines:
    """The routines of a store, by the list of keys; any thread may look one up.

    Args:
        bundle_bytes: As of :class:`Routine`.

    Example:
        >>> Routines().find(["weight"]) is None
        True
    """

    def __init__(self, bundle_bytes: int = 1 << 20) -> None:
        self._bundle_bytes = bundle_bytes
        self._known: dict[tuple[object, ...], Routine] = {}

    def find(self, keys: Any) -> Routine | None:
        """Return the routine of a list of keys that was added; anything may be asked for."""
        try:
            return self._known.get((*keys, *map(type, keys)))
        except TypeError:
            return None

    def add(self, entries: Sequence[DistEntry]) -> None:
        """Prepare the routine of these keys, if one can serve them."""
        keys = [entry.key for entry in entries]
        if len(self._known) >= _MOST_ROUTINES:
            self._known.clear()
        usable = all(
            not entry.layout.row_sparse and entry.layout.shape.numel() for entry in entries
        )
        if usable and entries:
            self._known[(*keys, *map(type, keys))] = Routine(entries, self._bundle_bytes)


def _filled(buffer: Buffer, views: Sequence[memoryview], size_bytes: int) -> Parcel:
    """Return a copy of all views, one behind the other, as one piece."""
    memory, start = buffer.view, 0
    for view in views:
        end = start + len(view)
        memory[start:end] = view
        start = end
    return Parcel([memory[:size_bytes]], size_bytes, buffer)


def _together(values: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that must not share memory: a result may replace its own value."""
    if all(value is out for value, out in zip(values, outs, strict=True)):
        return list(outs)
    return [*values, *outs]


def _bundled(
    entries: Sequence[DistEntry], bundle_bytes: int
) -> tuple[list[Bunch], list[list[tuple[int, int, int, int]]]]:
    """Deal slots to bunches; return also where the slots of each key are, as of ``_Memory``."""
    dealers: dict[int, Dealer] = {}
    numbers: dict[tuple[int, int], int] = {}
    contents: list[tuple[int, list[tuple[int, int, int]]]] = []
    cuts: list[list[tuple[int, int, int, int]]] = []
    for entry in entries:
        item_bytes = entry.layout.dtype.itemsize
        cuts.append([])
        for span in entry.spans:
            size_bytes = span.length * item_bytes
            if span.server not in dealers:
                dealers[span.server] = Dealer(bundle_bytes)
            message = span.server, dealers[span.server].place(size_bytes)
            number = numbers.setdefault(message, len(numbers))
            if number == len(contents):
                contents.append((span.server, []))
            slots = contents[number][1]
            cuts[-1].append((number, len(slots), span.offset * item_bytes, size_bytes))
            slots.append((*span.slot, size_bytes))
    return [Bunch(server, slots) for server, slots in contents], cuts
