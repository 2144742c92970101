"""Packs and unpacks 1bit and 2bit codes on the CPU, at the speed of memory.

Serial kernels compiled by numba on their first use, which release the interpreter's lock; one
pass reads gradient and residual once and writes residual and codes once. How the loops are
written decides whether LLVM turns them into vector instructions, and so a factor of ten:

* no branches: both results are computed and one selected;
* a block of codes goes through a buffer in the first-level cache, one byte an element, and a loop
  of its own packs or spreads it, since a loop that does both does not vectorise well;
* blocks are array slices indexed from zero; an index with an offset does not vectorise.

Called through :func:`bireme.compress.bits.bits_for`.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import torch

from bireme.compress import slices

__all__ = ("decode_onebit", "decode_twobit", "encode_onebit", "encode_twobit")

F = TypeVar("F", bound=Callable[..., Any])

_BLOCK = 4096
_GATHER_TWO = np.uint32(1 << 30 | 1 << 20 | 1 << 10 | 1)
_GATHER_ONE = np.uint64(0x8040201008040201)
_REPEAT = np.uint64(0x0101010101010101)
_ONE_BIT_EACH = np.uint64(0x0102040810204080)


def encode_twobit(
    grad: torch.Tensor, residual: torch.Tensor, data: torch.Tensor, threshold: float
) -> None:
    """As :meth:`bireme.compress.bits.Bits.encode_twobit`."""
    arrays = grad.numpy(), residual.numpy(), data.numpy()
    _encode(_encode_twobit, 4, *arrays, threshold)


def decode_twobit(
    data: torch.Tensor, out: torch.Tensor, threshold: float, accumulate: bool
) -> None:
    """As :meth:`bireme.compress.bits.Bits.decode_twobit`."""
    _decode(_decode_twobit, 4, data.numpy(), out.numpy(), (np.float32(threshold), accumulate))


def encode_onebit(
    grad: torch.Tensor, residual: torch.Tensor, data: torch.Tensor, threshold: float
) -> int:
    """As :meth:`bireme.compress.bits.Bits.encode_onebit`."""
    arrays = grad.numpy(), residual.numpy(), data.numpy()
    return sum(_encode(_encode_onebit, 8, *arrays, threshold))


def decode_onebit(data: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
    """As :meth:`bireme.compress.bits.Bits.decode_onebit`."""
    _decode(_decode_onebit, 8, data.numpy(), out.numpy(), (accumulate,))


def _encode(
    kernel: Callable[..., int],
    per_byte: int,
    grad: Any,
    residual: Any,
    data: Any,
    threshold: float,
) -> list[int]:
    def encode_part(start: int, stop: int) -> int:
        # The last part also writes the padding behind the last code.
        end = len(data) if stop == len(grad) else stop // per_byte
        codes = data[start // per_byte : end]
        return kernel(grad[start:stop], residual[start:stop], codes, np.float32(threshold))

    return slices.run(encode_part, slices.cut(len(grad), torch.get_num_threads()))


def _decode(
    kernel: Callable[..., None], per_byte: int, data: Any, out: Any, how: tuple[Any, ...]
) -> None:
    def decode_part(start: int, stop: int) -> None:
        kernel(data[start // per_byte :], out[start:stop], *how)

    slices.run(decode_part, slices.cut(len(out), torch.get_num_threads()))


def _jit(function: F) -> F:
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile each time.
        return cast("F", numba.njit(nogil=True)(function))


@_jit
def _encode_twobit(grad: Any, residual: Any, data: Any, threshold: Any) -> int:
    block = np.empty(_BLOCK, np.uint8)
    words = block.view(np.uint32)
    for start in range(0, grad.size, _BLOCK):
        grads = grad[start : start + _BLOCK]
        residuals = residual[start : start + _BLOCK]
        packed = data[start // 4 : start // 4 + words.size]
        for i in range(grads.size):
            old = residuals[i]
            total = old + grads[i]
            above = total >= threshold
            below = total <= -threshold
            finite = abs(total) < np.float32(np.inf)
            sent = threshold if above else (-threshold if below else np.float32(0))
            code = np.uint8(3) if above else (np.uint8(2) if below else np.uint8(0))
            residuals[i] = total - sent if finite else old
            block[i] = code if finite else np.uint8(1)
        block[grads.size :] = 0
        for i in range(packed.size):
            # The product moves the four codes side by side into the highest byte.
            packed[i] = np.uint8((words[i] * _GATHER_TWO) >> np.uint32(24))
    return 0


@_jit
def _encode_onebit(grad: Any, residual: Any, data: Any, threshold: Any) -> int:
    block = np.empty(_BLOCK, np.uint8)
    words = block.view(np.uint64)
    num_bad = 0
    for start in range(0, grad.size, _BLOCK):
        grads = grad[start : start + _BLOCK]
        residuals = residual[start : start + _BLOCK]
        packed = data[start // 8 : start // 8 + words.size]
        for i in range(grads.size):
            old = residuals[i]
            total = old + grads[i]
            finite = abs(total) < np.float32(np.inf)
            num_bad += not finite
            total = total if finite else old
            above = total > threshold
            residuals[i] = total - (np.float32(1) if above else np.float32(-1))
            block[i] = np.uint8(above)
        block[grads.size :] = 0
        for i in range(packed.size):
            packed[i] = np.uint8((words[i] * _GATHER_ONE) >> np.uint64(56))
    return num_bad


@_jit
def _decode_twobit(data: Any, out: Any, threshold: Any, accumulate: bool) -> None:
    block = np.empty(_BLOCK, np.uint8)
    words = block.view(np.uint32)
    for start in range(0, out.size, _BLOCK):
        values = out[start : start + _BLOCK]
        packed = data[start // 4 : start // 4 + words.size]
        for i in range(packed.size):
            byte = np.uint32(packed[i])
            spread = byte >> np.uint32(6) | byte << np.uint32(4)
            spread |= byte << np.uint32(14) | byte << np.uint32(24)
            words[i] = spread & np.uint32(0x03030303)
        # Two loops, because one that asks each time whether to add does not vectorise.
        if accumulate:
            for i in range(values.size):
                values[i] += _twobit_value(block[i], threshold)
        else:
            for i in range(values.size):
                values[i] = _twobit_value(block[i], threshold)


@_jit
def _twobit_value(code: Any, threshold: Any) -> Any:
    # Code 01 is the one that the thresholds leave free; it says "not finite".
    rest = np.float32(np.nan) if code == 1 else np.float32(0)
    return threshold if code == 3 else (-threshold if code == 2 else rest)


@_jit
def _decode_onebit(data: Any, out: Any, accumulate: bool) -> None:
    block = np.empty(_BLOCK, np.uint8)
    words = block.view(np.uint64)
    for start in range(0, out.size, _BLOCK):
        values = out[start : start + _BLOCK]
        packed = data[start // 8 : start // 8 + words.size]
        for i in range(packed.size):
            words[i] = (np.uint64(packed[i]) * _REPEAT) & _ONE_BIT_EACH
        if accumulate:
            for i in range(values.size):
                values[i] += np.float32(1) if block[i] else np.float32(-1)
        else:
            for i in range(values.size):
                values[i] = np.float32(1) if block[i] else np.float32(-1)
