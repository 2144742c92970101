"""Checks what is brought to a slot: first values, contributions, row numbers. Nothing is changed.

:class:`~bireme.node.values.TorchSlotValues` calls it before anything of a message is applied.
"""

from typing import cast

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.node.encodings import RAW, SUM, decoder
from bireme.node.partials import SlotShape, read_rows
from bireme.types.dtypes import DType
from bireme.wire.messages import InitEntry, PushEntry

__all__ = ("check_dense", "check_first", "check_row_numbers", "check_rows", "torch_dtype")


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return the element type that messages name.

    Example:
        >>> torch_dtype(DType.FLOAT32)
        torch.float32
    """
    return cast("torch.dtype", getattr(torch, dtype))


def check_first(entry: InitEntry) -> None:
    """Refuse a first value that is of another size than its slot.

    Raises:
        ConfigError: It is; or the slot's length is no whole number of rows.
    """
    size_bytes = entry.length * torch_dtype(entry.dtype).itemsize
    if entry.payload_bytes not in (0, size_bytes):
        raise ConfigError(
            f"slot {entry.key_id}.{entry.index} of {entry.length} {entry.dtype} was given "
            f"{entry.payload_bytes} bytes instead of {size_bytes}"
        )
    if entry.length % entry.row_length if entry.row_length else entry.length:
        raise ConfigError(
            f"slot {entry.key_id}.{entry.index}: {entry.length} elements are no whole number "
            f"of rows of {entry.row_length}"
        )


def check_dense(shape: SlotShape, entry: PushEntry) -> None:
    """Refuse a contribution to the whole slot that it cannot take.

    Raises:
        ConfigError: It has another size than its encoding and the slot's length say.
        UnsupportedError: Its encoding does not fit the slot's type.
    """
    if entry.encoding == RAW:
        expected = shape.length * shape.dtype.itemsize
    elif entry.encoding == SUM:
        expected = shape.length * shape.sum_dtype.itemsize
    else:
        if shape.dtype is not torch.float32:
            raise UnsupportedError(
                f"a {entry.encoding} push fits float32 keys only, and this one holds {shape.dtype}"
            )
        expected = decoder(entry.encoding).payload_bytes(shape.length)
    if entry.payload_bytes != expected:
        raise ConfigError(
            f"slot {entry.key_id}.{entry.index}: a {entry.encoding} push of {shape.length} "
            f"{shape.dtype} has {expected} bytes, and this one {entry.payload_bytes}"
        )


def check_rows(shape: SlotShape, entry: PushEntry, payload: memoryview, offset_bytes: int) -> None:
    """Refuse a contribution to some rows that the slot cannot take.

    Args:
        shape: The slot's.
        entry: Of the contribution.
        payload: Bytes of the whole message.
        offset_bytes: Where in them the entry's start.

    Raises:
        ConfigError: It is encoded, has another size than its rows, or a row is out of range.
    """
    expected = entry.num_rows * (8 + shape.row_length * shape.dtype.itemsize)
    if entry.encoding != RAW or entry.payload_bytes != expected:
        raise ConfigError(
            f"slot {entry.key_id}.{entry.index}: {entry.num_rows} raw rows have {expected} bytes, "
            f"and this {entry.encoding} push {entry.payload_bytes}"
        )
    ids, _ = read_rows(entry, payload, offset_bytes, shape)
    check_row_numbers(shape, ids)


def check_row_numbers(shape: SlotShape, ids: torch.Tensor) -> None:
    """Refuse numbers of rows that a slot has not.

    Args:
        shape: The slot's.
        ids: int64, one-dimensional.

    Raises:
        ConfigError: One is out of range.
    """
    if len(ids) == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= shape.num_rows:
        raise ConfigError(
            f"row numbers run from {low} to {high}, but the slot has rows 0 to {shape.num_rows - 1}"
        )
