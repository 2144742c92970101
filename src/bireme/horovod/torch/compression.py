"""Fewer bytes on the way: what a tensor becomes before it is reduced, and again after."""

from typing import Any

import torch
from torch import Tensor

__all__ = ("BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor")


class Compressor:
    """What users derive from to make a compression of their own."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return what to send for ``tensor``, and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the result for the user from what arrived."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return the tensor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor."""
        del ctx
        return tensor


class FP16Compressor(Compressor):
    """Sends floating tensors as float16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return the tensor as float16, and its own type."""
        return _narrow(tensor, torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor in its own type."""
        return tensor.to(ctx)


class BF16Compressor(Compressor):
    """Sends floating tensors as bfloat16: the range of float32 with 8 bits of precision."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Return the tensor as bfloat16, and its own type."""
        return _narrow(tensor, torch.bfloat16), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor in its own type."""
        return tensor.to(ctx)


class Compression:
    """The compressions that there are, for the ``compression`` argument."""

    none = NoneCompressor
    """As they are."""
    fp16 = FP16Compressor
    """float16."""
    bf16 = BF16Compressor
    """bfloat16, which overflows no sooner than float32."""


def _narrow(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.dtype.is_floating_point else tensor
