"""The arguments of one call, checked against the keys they name.

Pure but for reading what an entry never changes. Stores build these before they take a lock, so
a call that is wrong leaves everything as it was.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from bireme.errors import ConfigError, StateError
from bireme.kvstore.base import Key, Values
from bireme.kvstore.keys import group
from bireme.kvstore.reduce.rows import to_dense
from bireme.update.layout import Layout

__all__ = (
    "Keyed",
    "Pull",
    "Push",
    "RowPull",
    "check_outs",
    "check_single",
    "checked_priority",
    "first_values",
    "pulls",
    "pushes",
    "row_pulls",
)


_MOST_URGENT = 1 << 29
"""Beyond it is what must not wait behind data."""


class Keyed(Protocol):
    """What a store keeps for a key, as far as checks look at it."""

    @property
    def key(self) -> Key:
        """The key."""

    @property
    def layout(self) -> Layout:
        """What it keeps for life."""


E = TypeVar("E", bound=Keyed)


@dataclass(slots=True)
class Push(Generic[E]):
    """The values pushed for one key."""

    entry: E
    values: list[torch.Tensor]
    row_sparse: bool
    """Whether all of them are row-sparse, so that their sum is too."""


@dataclass(slots=True)
class Pull(Generic[E]):
    """Where one key's value goes."""

    entry: E
    outs: list[torch.Tensor]


@dataclass(slots=True)
class RowPull(Generic[E]):
    """Which rows of one key's value go where."""

    entry: E
    rows: list[torch.Tensor]
    """Sorted unique row numbers; one tensor for all of ``outs``, or one for each."""

    outs: list[torch.Tensor] | None
    """Row-sparse tensors to replace, if the caller gave any."""

    def give(self, taken: Sequence[torch.Tensor]) -> torch.Tensor:
        """Write the tensors of ``rows`` to ``outs``, and return the first of them."""
        if self.outs is not None:
            sources = taken if len(taken) > 1 else [taken[0]] * len(self.outs)
            for source, out in zip(sources, self.outs, strict=True):
                out.copy_(source)
        return taken[0]


def first_values(keys: Sequence[Key], is_list: bool, value: Values) -> dict[Key, torch.Tensor]:
    """Return the first value of each key of an ``init``.

    Raises:
        StateError: A key is named twice.
        ConfigError: A key does not have exactly one value, or one that a store cannot hold.
    """
    groups = group(keys, is_list, value)
    if len(groups) != len(keys):
        twice = next(each for each in keys if keys.count(each) > 1)
        raise StateError(f"key {twice!r} is initialised twice in one call; name it once")
    for key, values in groups.items():
        if len(values) != 1:
            raise ConfigError(
                f"init takes one value for key {key!r}, got {len(values)}; every device pulls "
                "the same one"
            )
        Layout.of(key, values[0])
    return {key: _as_it_is(values[0]) for key, values in groups.items()}


def pushes(
    entries: Sequence[E], keys: Sequence[Key], is_list: bool, value: Values
) -> list[Push[E]]:
    """Return what is pushed to each of ``entries``.

    Raises:
        ConfigError: Shape, dtype, layout or number of values does not fit.
    """
    if not keys:
        return _nothing(value, "value")
    groups = group(keys, is_list, value)
    return [_push(entry, groups[entry.key]) for entry in entries]


def _as_it_is(value: torch.Tensor) -> torch.Tensor:
    """Return a value that needs no look at torch's negative bit."""
    return value.resolve_neg() if value.layout is torch.strided else value


def _push(entry: E, values: list[torch.Tensor]) -> Push[E]:
    layout = entry.layout
    if not layout.row_sparse and _all_fit(layout, values):
        return Push(entry, values, False)
    for value in values:
        layout.check_value(entry.key, value)
    values = [_as_it_is(each) for each in values]
    num_sparse = sum(value.layout is not torch.strided for value in values)
    if 0 < num_sparse < len(values):
        values = [each if each.layout is torch.strided else to_dense(each) for each in values]
    return Push(entry, values, num_sparse == len(values))


def check_single(push: Push[Any]) -> None:
    """Refuse a new value that comes in several parts.

    Raises:
        ConfigError: There is more than one value.
    """
    if len(push.values) != 1:
        raise ConfigError(
            f"key {push.entry.key!r} is overwritten by one value, got {len(push.values)}"
        )


def pulls(entries: Sequence[E], keys: Sequence[Key], is_list: bool, out: Values) -> list[Pull[E]]:
    """Return where the value of each of ``entries`` goes.

    Raises:
        ConfigError: Shape, dtype, layout or number of outs does not fit.
    """
    if not keys:
        return _nothing(out, "out")
    groups = group(keys, is_list, out, "out")
    for entry in entries:
        check_outs(entry.key, entry.layout, groups[entry.key])
    return [Pull(entry, groups[entry.key]) for entry in entries]


def checked_priority(priority: object) -> int:
    """Return a call's priority as an integer within what travels.

    Raises:
        ConfigError: It is no integer.

    Example:
        >>> checked_priority(-3), checked_priority(10**30) < 2**31
        (-3, True)
    """
    try:
        number = operator.index(priority)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"a priority must be an integer, got {priority!r:.60}") from None
    return max(-_MOST_URGENT, min(_MOST_URGENT, number))


def check_outs(key: Key, layout: Layout, outs: Sequence[torch.Tensor]) -> None:
    """Refuse tensors that a value of ``layout`` cannot be pulled into.

    Raises:
        ConfigError: Shape, dtype or layout does not fit.
    """
    if not (_all_fit(layout, outs) and all(out.is_contiguous() for out in outs)):
        for out in outs:
            layout.check_out(key, out)


def row_pulls(
    entries: Sequence[E],
    keys: Sequence[Key],
    is_list: bool,
    out: Values | None,
    row_ids: Values,
) -> list[RowPull[E]]:
    """Return which rows of each of ``entries`` go where.

    Raises:
        ConfigError: A row id is out of range, an ``out`` is dense, or their numbers differ.
    """
    if not keys:
        return _nothing(row_ids, "row_ids")
    ids = group(keys, is_list, row_ids, "row_ids")
    outs = None if out is None else group(keys, is_list, out, "out")
    return [_row_pull(entry, ids[entry.key], outs) for entry in entries]


def _row_pull(
    entry: E, ids: list[torch.Tensor], groups: Mapping[Key, list[torch.Tensor]] | None
) -> RowPull[E]:
    outs = None if groups is None else groups[entry.key]
    num_outs = 1 if outs is None else len(outs)
    if len(ids) not in (1, num_outs):
        raise ConfigError(
            f"key {entry.key!r} has {len(ids)} row_ids for {num_outs} outs; give one for all or "
            "one for each"
        )
    for each in outs or ():
        entry.layout.check_sparse_out(entry.key, each)
    return RowPull(entry, [_row_ids(entry, each) for each in ids], outs)


def _row_ids(entry: Keyed, ids: torch.Tensor) -> torch.Tensor:
    shape = entry.layout.shape
    if not shape:
        raise ConfigError(f"key {entry.key!r} is a scalar: it has no rows")
    if ids.layout is not torch.strided or ids.dtype not in _INTEGERS:
        raise ConfigError(
            f"row_ids of key {entry.key!r} must be a dense tensor of integers, got {ids.dtype}, "
            f"{ids.layout}"
        )
    rows: torch.Tensor = torch.unique(ids.detach().reshape(-1).to(torch.int64), sorted=True)
    if len(rows) and not (int(rows[0]) >= 0 and int(rows[-1]) < shape[0]):
        raise ConfigError(
            f"row_ids of key {entry.key!r} run from {int(rows[0])} to {int(rows[-1])}, but it "
            f"has {shape[0]} rows, numbered from 0"
        )
    return rows


_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def _all_fit(layout: Layout, tensors: Sequence[torch.Tensor]) -> bool:
    # The common case in one loop, since a call may bring a thousand tensors.
    shape, dtype, dense = layout.shape, layout.dtype, torch.strided
    for tensor in tensors:
        if tensor.dtype is not dtype or tensor.layout is not dense or tensor.shape != shape:
            return False
        if tensor.is_meta or tensor.is_neg():
            return False
    return True


def _nothing(given: object, what: str) -> list[Any]:
    if given is not None and not (isinstance(given, (list, tuple)) and not given):
        raise ConfigError(f"{what} must be an empty list for an empty list of keys")
    return []
