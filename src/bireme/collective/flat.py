"""Tensors of a call as contiguous memory, and what is checked of them before anybody waits.

Called by `BiremeProcessGroup`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bireme.errors import ConfigError, UnsupportedError
from bireme.update.layout import lies_plain

__all__ = ("Flat", "check_many", "check_root", "check_whole", "split_rows", "write_back")


class Flat:
    """A tensor as contiguous memory: its own, or a copy that is written back.

    Attributes:
        tensor: The memory; autograd sees nothing of what is done to it.
        is_plain: Whether it is the tensor's own.
    """

    __slots__ = ("_original", "is_plain", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        if not tensor.is_cpu:
            raise UnsupportedError(
                f"the backend bireme exchanges tensors on the CPU, not on {tensor.device}; use "
                "'cpu:bireme,cuda:nccl' or nccl"
            )
        if tensor.layout is not torch.strided:
            raise UnsupportedError(f"the backend bireme does not exchange {tensor.layout} tensors")
        self.is_plain = lies_plain(tensor)
        if self.is_plain:
            self._original = None
            self.tensor = tensor.detach() if tensor.requires_grad else tensor
        else:
            self._original = tensor
            self.tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()

    def write_back(self) -> None:
        """Give the caller's tensor what the operation left."""
        if self._original is None:
            return
        target, source = self._original.detach(), self.tensor
        for dim, (step, size) in enumerate(zip(target.stride(), target.shape, strict=True)):
            if step == 0 and size > 1:
                # An expanded tensor's elements share memory, and have become the same.
                target, source = target.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
        target.copy_(source)


def write_back(flat: Sequence[Flat]) -> None:
    """Write all of them back."""
    for each in flat:
        each.write_back()


def split_rows(tensor: Tensor, splits: Any, size: int, side: str) -> list[Tensor]:
    """Cut a tensor's rows as ``splits`` says, or equally."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise ConfigError(f"all_to_all: {rows} rows of {side} are not equal parts for {size}")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise ConfigError(f"all_to_all: {side} splits {list(splits)} do not cover {rows} rows")
    row = tensor.numel() // rows if rows else 0
    return list(torch.split(tensor.view(-1), [each * row for each in splits]))


def check_root(root: int, size: int) -> None:
    """Raise `ConfigError` if a group of ``size`` has no rank ``root``."""
    if not 0 <= root < size:
        raise ConfigError(f"no rank {root} in a group of {size}")


def check_many(
    name: str, flat: Sequence[Flat], size: int, dtype: torch.dtype, length: int | None = None
) -> None:
    """Raise `ConfigError` unless there is one tensor for each rank, of the type and length due."""
    if len(flat) != size:
        raise ConfigError(f"{name}: {len(flat)} tensors for {size} ranks")
    for each in flat:
        if each.tensor.dtype != dtype:
            raise ConfigError(f"{name}: tensors of {each.tensor.dtype} and of {dtype}")
        if length is not None and each.tensor.numel() != length:
            raise ConfigError(f"{name}: {each.tensor.numel()} elements where {length} are due")


def check_whole(name: str, whole: Tensor, part: Tensor, size: int) -> None:
    """Raise `ConfigError` unless ``whole`` has room for a ``part`` of each rank."""
    if whole.dtype != part.dtype:
        raise ConfigError(f"{name}: tensors of {whole.dtype} and of {part.dtype}")
    if whole.numel() != part.numel() * size:
        raise ConfigError(f"{name}: {whole.numel()} elements are not {size} times {part.numel()}")
