"""What servers keep for a store's keys, gathered to whole values by key, and given back.

Called by :class:`~bireme.kvstore.dist.server_optimizer.ServerOptimizer`. Pieces travel in groups,
so that no message grows with the model.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from bireme.kvstore.base import Key
from bireme.kvstore.dist.entry import DistEntry, SlotSpan
from bireme.kvstore.reduce.rows import to_dense
from bireme.node.pieces import name_of, pack, unpack
from bireme.node.tickets import Slot
from bireme.node.worker import WorkerClient
from bireme.update.spec import OptimizerSpec
from bireme.update.state_folders import joined, new_token, write_index
from bireme.update.states import numbers_of
from bireme.wire.messages import CommandKind

__all__ = ("gather", "overwrite", "save_folder", "scatter")

_GROUP_BYTES = 16 << 20
"""Bytes of values whose state travels together: a few times as much for most optimizers."""

State = Mapping[str, object]


def gather(
    client: WorkerClient, store: int, entries: Sequence[DistEntry], timeout_s: float
) -> dict[Key, dict[str, object]]:
    """Return the optimizer's state of every key that has one, in the shape of its value.

    Raises:
        StateError: The servers run no optimizer.
    """
    found: dict[Slot, State] = {}
    for group in _groups(entries):
        body = {"slots": [list(span.slot) for _, span in group]}
        answers = client.command(store, CommandKind.SAVE_STATE, body, timeout_s)
        for _, raw in answers.values():
            found |= unpack(raw)
    states = {
        entry.key: joined(
            entry.layout.shape,
            [span.length for span in entry.spans],
            [found.get(span.slot, {}) for span in entry.spans],
        )
        for entry in entries
    }
    return {key: state for key, state in states.items() if state}


def save_folder(
    client: WorkerClient,
    store: int,
    entries: Sequence[DistEntry],
    folder: str,
    spec: OptimizerSpec,
    timeout_s: float,
) -> None:
    """Let every server write its part of ``folder``, then name the parts in an index.

    Raises:
        ConfigError: Workers and servers do not share the folder.
        StateError: A server cannot write.
    """
    os.makedirs(folder, exist_ok=True)
    folder = os.path.abspath(folder)
    # As bytes: names of files need not be text.
    body = {"folder": os.fsencode(folder), "token": new_token()}
    answers = client.command(store, CommandKind.SAVE_STATE, body, timeout_s)
    files = [str(answer["file"]) for answer, _ in answers.values()]
    keys = [
        (
            entry.key,
            entry.layout.shape,
            [(name_of(span.slot), span.length) for span in entry.spans],
        )
        for entry in entries
    ]
    write_index(folder, spec.name, numbers_of(spec), files, keys)


def scatter(
    client: WorkerClient,
    store: int,
    entries: Sequence[DistEntry],
    states: Mapping[Key, State],
    timeout_s: float,
) -> None:
    """Replace all state on the servers by ``states``, which fit the keys."""
    body: dict[str, object] = {"first": True}
    for group in _groups(entries) or [[]]:
        pieces = {
            span.slot: (entry, _part(entry, span, states[entry.key]))
            for entry, span in group
            if entry.key in states
        }
        _send(client, store, body, pieces, timeout_s)
        body = {}


def overwrite(
    client: WorkerClient,
    store: int,
    values: Sequence[tuple[DistEntry, torch.Tensor]],
    timeout_s: float,
) -> None:
    """Replace whole values, which are dense and fit their keys."""
    flats = {entry.key: value.detach().cpu().reshape(-1) for entry, value in values}
    for group in _groups([entry for entry, _ in values]):
        pieces = {
            span.slot: (entry, {"value": _cut(flats[entry.key], span)}) for entry, span in group
        }
        _send(client, store, {"values": True}, pieces, timeout_s)


def _send(
    client: WorkerClient,
    store: int,
    body: Mapping[str, object],
    pieces: Mapping[Slot, tuple[DistEntry, State]],
    timeout_s: float,
) -> None:
    by_server: dict[int, dict[Slot, State]] = {}
    for slot, (entry, state) in pieces.items():
        server = entry.spans[slot[1]].server
        by_server.setdefault(server, {})[slot] = state
    packed = {server: pack(states) for server, states in by_server.items()}
    client.command(store, CommandKind.LOAD_STATE, body, timeout_s, packed)


def _groups(entries: Iterable[DistEntry]) -> list[list[tuple[DistEntry, SlotSpan]]]:
    groups: list[list[tuple[DistEntry, SlotSpan]]] = []
    room = 0
    for entry, span in _spans(entries):
        size_bytes = span.length * entry.layout.dtype.itemsize
        if not groups or size_bytes > room:
            groups.append([])
            room = _GROUP_BYTES
        groups[-1].append((entry, span))
        room -= size_bytes
    return groups


def _spans(entries: Iterable[DistEntry]) -> Iterator[tuple[DistEntry, SlotSpan]]:
    for entry in entries:
        for span in entry.spans:
            yield entry, span


def _part(entry: DistEntry, span: SlotSpan, state: State) -> dict[str, object]:
    return {name: _slice(entry, span, value) for name, value in state.items()}


def _slice(entry: DistEntry, span: SlotSpan, value: object) -> object:
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    value = to_dense(value).cpu() if value.is_sparse else value.detach().cpu()
    return _cut(value.reshape(-1), span) if value.shape == entry.layout.shape else value


def _cut(flat: torch.Tensor, span: SlotSpan) -> torch.Tensor:
    return flat[span.offset : span.offset + span.length]
