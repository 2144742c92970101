"""The keys of one distributed store: agreed with the scheduler, given their first values."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import torch

from bireme.errors import ConfigError, StateError, UnknownKeyError
from bireme.kvstore.base import Key
from bireme.kvstore.dist.entry import DistEntry, SlotSpan
from bireme.kvstore.keys import key_kind
from bireme.kvstore.reduce.rows import to_dense
from bireme.node.memory import Held
from bireme.node.worker import WorkerClient
from bireme.types.choices import Consistency
from bireme.types.choices import Layout as WireLayout
from bireme.types.dtypes import DType
from bireme.update.layout import Layout
from bireme.wire.messages import InitEntry, JobConfig, KeyDecl, KeyPlacement

__all__ = ("Directory",)


@dataclass(slots=True)
class _First:
    entry: DistEntry
    value: torch.Tensor


class Directory:
    """What this worker knows of a store's keys.

    Args:
        client: The worker's link to the job.
        number: Number of the store within the job.
        consistency: Of every key.
        config: The job's limits.
        staleness: For ``bounded``: rounds that a worker may be ahead of the slowest.
    """

    def __init__(
        self,
        client: WorkerClient,
        number: int,
        consistency: Consistency,
        config: JobConfig,
        staleness: int = 0,
    ) -> None:
        self.number = number
        self.splittable = True
        """Whether keys declared from now on may be cut over servers."""
        self.consistency = consistency
        self.staleness = staleness
        self._client = client
        self._adding = threading.Lock()
        self._config = config
        self._entries: dict[Key, DistEntry] = {}
        self._kind: type[int] | type[str] | None = None

    def add(self, first: Mapping[Key, torch.Tensor]) -> None:
        """Agree on keys; rank 0's values become their first ones.

        Raises:
            StateError: This worker has initialised a key before.
            ConfigError: Another worker gave a key another shape, dtype or layout.
        """
        with self._adding:
            self._add(first)

    def _add(self, first: Mapping[Key, torch.Tensor]) -> None:
        kind = key_kind(list(first), self._kind)
        for key in first:
            if key in self._entries:
                raise StateError(f"key {key!r} is initialised already; push a new value instead")
        layouts = {key: Layout.of(key, value) for key, value in first.items()}
        decls = [self._decl(key, layout) for key, layout in layouts.items()]
        placements = self._client.declare(self.number, decls, self._config.push_timeout_s)
        added = {
            key: _First(_entry(key, layouts[key], placement), value)
            for (key, value), placement in zip(first.items(), placements, strict=True)
        }
        if self._client.rank == 0:
            self._give_first_values(list(added.values()))
        self._kind = kind
        # A new dictionary, so that readers need no lock.
        self._entries = self._entries | {key: each.entry for key, each in added.items()}

    @property
    def in_rounds(self) -> bool:
        """Whether a push counts together with one of every other worker."""
        return self.consistency is Consistency.SYNC or (
            self.consistency is Consistency.BOUNDED and self.staleness == 0
        )

    def find(self, keys: Sequence[Key]) -> list[DistEntry]:
        """Return the entries of ``keys``, each once, in order of first mention.

        Raises:
            UnknownKeyError: This worker never initialised a key.
        """
        if not keys:
            return []
        key_kind(keys, self._kind)
        found = {}
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                raise UnknownKeyError(
                    f"key {key!r} was never initialised; call init({key!r}, value) first"
                )
            found[key] = entry
        return list(found.values())

    def all(self) -> list[DistEntry]:
        """Return every entry."""
        return list(self._entries.values())

    def clear(self) -> None:
        """Forget every key."""
        self._entries = {}

    def _decl(self, key: Key, layout: Layout) -> KeyDecl:
        decl = KeyDecl(
            key,
            tuple(layout.shape),
            DType(str(layout.dtype).removeprefix("torch.")),
            WireLayout.ROWS if layout.row_sparse else WireLayout.DENSE,
            self.splittable,
            self.consistency,
            self.staleness,
        )
        try:
            msgspec.msgpack.decode(msgspec.msgpack.encode(decl), type=KeyDecl)
        except (msgspec.ValidationError, OverflowError, ValueError) as error:
            raise ConfigError(f"key {key!r:.60} cannot be sent to servers: {error}") from error
        return decl

    def _give_first_values(self, added: Sequence[_First]) -> None:
        entries: list[tuple[InitEntry, Held]] = []
        for each in added:
            value = to_dense(each.value) if each.value.is_sparse else each.value.detach()
            flat = value.cpu().contiguous().view(-1)
            views = [Held(view) for view in each.entry.cut(flat)]
            entries += zip(self._init_entries(each.entry), views, strict=True)
        self._client.init(self.number, entries, self._config.push_timeout_s)

    def _init_entries(self, entry: DistEntry) -> list[InitEntry]:
        layout = entry.layout
        whole = tuple(layout.shape) if len(entry.spans) == 1 else None
        row_length = entry.row_length if entry.has_whole_rows else 1
        return [
            InitEntry(
                *span.slot,
                DType(str(layout.dtype).removeprefix("torch.")),
                span.length,
                row_length,
                WireLayout.ROWS if layout.row_sparse else WireLayout.DENSE,
                self.consistency,
                span.length * layout.dtype.itemsize,
                whole,
                self.staleness,
            )
            for span in entry.spans
        ]


def _entry(key: Key, layout: Layout, placement: KeyPlacement) -> DistEntry:
    spans = [
        SlotSpan((placement.key_id, index), slot.offset, slot.length, slot.server)
        for index, slot in enumerate(placement.slots)
    ]
    return DistEntry(key, layout, spans)
