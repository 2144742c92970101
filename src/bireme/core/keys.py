"""The keys of a job: their numbers, their shapes, and where their slots live.

Owned by the scheduler. Any worker may declare any key at any time; the first declaration counts,
and every later one must say the same.
"""

import itertools
from math import prod

import msgspec

from bireme.errors import ConfigError
from bireme.placement import Balancer, cut
from bireme.types.nodes import NodeId
from bireme.wire.messages import Consistency, KeyDecl, KeyPlacement, Layout, SlotPlacement

__all__ = ("KeyRegistry",)

_Name = tuple[int, int | str]

_MOST_SLOTS = 1 << 18
_MOST_NAME_BYTES = 4 << 20
# Together they keep the answer to a declaration well within the wire's limits.


class _Known(msgspec.Struct, frozen=True):
    """A declared key."""

    decl: KeyDecl
    placement: KeyPlacement
    by: NodeId


class KeyRegistry:
    """Gives keys their numbers and places.

    Args:
        bandwidths: Of the servers, by rank; a server with 0 gets nothing.
        slice_bytes: Greatest size of a slot, where a key can be cut.
    """

    def __init__(self, bandwidths: list[float], slice_bytes: int) -> None:
        self._balancer = Balancer(bandwidths)
        self._num_servers = len(bandwidths)
        self._slice_bytes = slice_bytes
        self._known: dict[_Name, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def report(self, most: int) -> list[list[object]]:
        """Return number and name of the first ``most`` keys, as plain data."""
        first = itertools.islice(self._known.values(), most)
        return [[known.placement.key_id, known.placement.name] for known in first]

    def declare(
        self, store: int, keys: tuple[KeyDecl, ...], by: NodeId
    ) -> tuple[KeyPlacement, ...]:
        """Return the placement of each key, in order; new keys get one now.

        Args:
            store: Keys of different stores are different, whatever their names.
            keys: The declarations.
            by: Who declares them.

        Raises:
            ConfigError: A key was declared differently before, or the answer would be too large;
                nothing is declared then.
        """
        self._check_size(keys)
        told: dict[_Name, KeyDecl] = {}
        for decl in keys:
            name = (store, decl.name)
            known = self._known.get(name)
            if known is not None and known.decl != decl:
                raise ConfigError(_conflict(known.decl, known.by, decl, by))
            if told.setdefault(name, decl) != decl:
                raise ConfigError(_conflict(told[name], by, decl, by))
        return tuple(self._place(store, decl, by) for decl in keys)

    def _check_size(self, keys: tuple[KeyDecl, ...]) -> None:
        num_slots = 0
        for decl in keys:
            if decl.layout is Layout.TABLE:
                num_slots += self._num_servers
                continue
            size_bytes = prod(decl.shape) * decl.dtype.itemsize
            num_slots += self._most_slots(size_bytes) if decl.splittable else 1
            if num_slots > _MOST_SLOTS:
                raise ConfigError(
                    f"key {decl.name!r:.60} of {size_bytes} bytes would be cut into slices of "
                    f"{self._slice_bytes}, and no more than {_MOST_SLOTS} slices can be declared "
                    "at once; raise BIREME_SLICE_BYTES"
                )
        name_bytes = sum(len(decl.name.encode()) for decl in keys if isinstance(decl.name, str))
        if name_bytes > _MOST_NAME_BYTES:
            raise ConfigError(
                f"the names of {len(keys)} keys have {name_bytes} bytes, and no more than "
                f"{_MOST_NAME_BYTES} can be declared at once; init fewer keys at a time"
            )

    def _most_slots(self, size_bytes: int) -> int:
        """Return how many slots a value may be cut into, at most."""
        num_slots = size_bytes // self._slice_bytes + 1
        return num_slots + self._num_servers if num_slots > self._num_servers else num_slots

    def _place(self, store: int, decl: KeyDecl, by: NodeId) -> KeyPlacement:
        known = self._known.get((store, decl.name))
        if known is not None:
            return msgspec.structs.replace(known.placement, new=False)
        slots = self._on_every_server() if decl.layout is Layout.TABLE else self._cut(decl)
        placement = KeyPlacement(len(self._known), decl.name, slots, new=True)
        self._known[store, decl.name] = _Known(decl, placement, by)
        return placement

    def _on_every_server(self) -> tuple[SlotPlacement, ...]:
        """Return the places of a table: rows come and go, so that they have no bytes yet."""
        return tuple(SlotPlacement(server, 0, 0) for server in range(self._num_servers))

    def _cut(self, decl: KeyDecl) -> tuple[SlotPlacement, ...]:
        itemsize = decl.dtype.itemsize
        spans = cut(
            prod(decl.shape),
            itemsize,
            row_length=max(1, prod(decl.shape[1:])),
            slice_bytes=self._slice_bytes,
            whole_rows=decl.layout is Layout.ROWS,
            splittable=decl.splittable,
            num_servers=self._num_servers,
        )
        servers = self._balancer.place([span.length * itemsize for span in spans])
        return tuple(
            SlotPlacement(server, span.offset, span.length)
            for server, span in zip(servers, spans, strict=True)
        )


def _conflict(first: KeyDecl, first_by: NodeId, second: KeyDecl, second_by: NodeId) -> str:
    return (
        f"key {first.name!r} is {_described(first)} on {first_by}, but {_described(second)} on "
        f"{second_by}; every worker must use it in the same way"
    )


def _described(decl: KeyDecl) -> str:
    kind = "" if decl.splittable else ", in one piece"
    if decl.consistency is Consistency.BOUNDED:
        kind = f" with staleness {decl.staleness}{kind}"
    return f"{decl.layout} {decl.dtype} of shape {decl.shape} ({decl.consistency}{kind})"
