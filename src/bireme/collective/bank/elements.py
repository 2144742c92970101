"""How elements of each type are seen in shared memory, copied and reduced.

numpy does both for the types that it knows: one thread, vector instructions, the interpreter's lock
released. The others (16- and 8-bit floats) are added in float32 by torch and rounded once at the
end. Sums are folded from rank 0 upwards, whoever computes them, so that every run and every
algorithm gives the same bits.
Called by `reducing.py` and `moving.py`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bireme.errors import UnsupportedError

__all__ = ("Elements", "NumpyElements", "Reduction", "WidenedElements", "elements_of", "raw_bytes")

_BLOCK = 1 << 15
"""Elements added at once by torch: so few that it starts no threads and the cache holds them."""

_NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.uint32: np.uint32,
    torch.uint64: np.uint64,
    torch.bool: np.bool_,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
_WIDENED = frozenset(
    {
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
    }
)


class Reduction(StrEnum):
    """What is computed from the ranks' elements."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


_BITWISE = (Reduction.BAND, Reduction.BOR, Reduction.BXOR)
_ORDERED = (Reduction.MIN, Reduction.MAX)

Array = Any
"""A flat run of elements: a numpy array, or a tensor. Slices are views."""


class Elements(Protocol):
    """One element type."""

    item_bytes: int

    def view(self, area: "np.ndarray[Any, Any]") -> Array:
        """Return shared bytes as elements."""

    def of(self, tensor: Tensor) -> Array:
        """Return a contiguous tensor's elements as a flat array of the same memory."""

    def copy(self, target: Array, source: Array) -> None:
        """Copy elements."""

    def fold(self, sources: Sequence[Array], out: Array, op: Reduction) -> None:
        """Reduce ``sources`` in their order into ``out``, which is none of them.

        All have the same length.
        """

    def combiner(self, op: Reduction) -> Callable[..., object] | None:
        """Return what reduces two arrays into its ``out``, which may be the first of them.

        None: it takes more than that, or is not worth its while for a short array.
        """

    def divide(self, array: Array, divisor: int) -> None:
        """Divide in place; integers towards zero, as NCCL does."""


class NumpyElements:
    """Types that numpy knows. See `Elements`.

    Example:
        >>> elements = NumpyElements(torch.int32)
        >>> a, b, out = (elements.of(torch.tensor([k], dtype=torch.int32)) for k in (1, 2, 0))
        >>> elements.fold([a, b], out, Reduction.SUM); out.tolist()
        [3]
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._kind = np.dtype(_NUMPY[dtype])
        self.item_bytes = self._kind.itemsize
        self._is_exact = not (dtype.is_floating_point or dtype.is_complex)

    def view(self, area: "np.ndarray[Any, Any]") -> Array:
        """See `Elements.view`."""
        return area[: area.size // self.item_bytes * self.item_bytes].view(self._kind)

    def of(self, tensor: Tensor) -> Array:
        """See `Elements.of`."""
        if tensor.requires_grad:
            tensor = tensor.detach()
        array: Array = (tensor if tensor.dim() == 1 else tensor.view(-1)).numpy()
        return array

    def copy(self, target: Array, source: Array) -> None:
        """See `Elements.copy`."""
        np.copyto(target, source)

    def fold(self, sources: Sequence[Array], out: Array, op: Reduction) -> None:
        """See `Elements.fold`."""
        combine = _UFUNCS[op]
        # An overflow is the caller's own, and torch does not warn of it either.
        with np.errstate(all="ignore"):
            if len(sources) == 1:
                np.copyto(out, sources[0])
            else:
                combine(sources[0], sources[1], out=out)
            for source in sources[2:]:
                combine(out, source, out=out)
            if op is Reduction.AVG:
                self.divide(out, len(sources))

    def combiner(self, op: Reduction) -> Callable[..., object] | None:
        """See `Elements.combiner`."""
        return None if op is Reduction.AVG else _UFUNCS[op]

    def divide(self, array: Array, divisor: int) -> None:
        """See `Elements.divide`."""
        if self._is_exact:
            np.subtract(array, np.fmod(array, divisor), out=array)
            np.floor_divide(array, divisor, out=array)
        else:
            np.divide(array, divisor, out=array)


_UFUNCS: dict[Reduction, Callable[..., Any]] = {
    Reduction.SUM: np.add,
    Reduction.AVG: np.add,
    Reduction.PRODUCT: np.multiply,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
    Reduction.BAND: np.bitwise_and,
    Reduction.BOR: np.bitwise_or,
    Reduction.BXOR: np.bitwise_xor,
}
_TORCH: dict[Reduction, Callable[..., Any]] = {
    Reduction.SUM: torch.add,
    Reduction.AVG: torch.add,
    Reduction.PRODUCT: torch.mul,
    Reduction.MIN: torch.minimum,
    Reduction.MAX: torch.maximum,
}


class WidenedElements:
    """Types that are computed with in float32. See `Elements`.

    Example:
        >>> elements = WidenedElements(torch.float16)
        >>> out = torch.empty(1, dtype=torch.float16)
        >>> ones = [torch.full((1,), each, dtype=torch.float16) for each in (2048.0, 1.0, 1.0)]
        >>> elements.fold(ones, out, Reduction.SUM); out.item()    # 2048 + 1 is 2048 in float16
        2050.0
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.item_bytes = dtype.itemsize

    def view(self, area: "np.ndarray[Any, Any]") -> Array:
        """See `Elements.view`."""
        whole = area[: area.size // self.item_bytes * self.item_bytes]
        return torch.from_numpy(whole).view(self._dtype)

    def of(self, tensor: Tensor) -> Array:
        """See `Elements.of`."""
        return tensor.detach().view(-1)

    def copy(self, target: Array, source: Array) -> None:
        """See `Elements.copy`."""
        # As bytes and by numpy: torch would share a large copy out over threads.
        np.copyto(target.view(torch.uint8).numpy(), source.view(torch.uint8).numpy())

    def fold(self, sources: Sequence[Array], out: Array, op: Reduction) -> None:
        """See `Elements.fold`."""
        combine = _TORCH[op]
        length = min(out.numel(), _BLOCK)
        total, term = torch.empty(length), torch.empty(length)
        for start in range(0, out.numel(), _BLOCK):
            stop = min(start + _BLOCK, out.numel())
            if stop - start < length:
                total, term = total[: stop - start], term[: stop - start]
            total.copy_(sources[0][start:stop])
            for source in sources[1:]:
                combine(total, term.copy_(source[start:stop]), out=total)
            if op is Reduction.AVG:
                total.div_(len(sources))
            out[start:stop].copy_(total)

    def combiner(self, op: Reduction) -> Callable[..., object] | None:
        """See `Elements.combiner`."""
        del op
        return None

    def divide(self, array: Array, divisor: int) -> None:
        """See `Elements.divide`."""
        for piece in array.split(_BLOCK):
            piece.copy_(piece.to(torch.float32).div_(divisor))


def elements_of(dtype: torch.dtype, op: Reduction | None = None) -> Elements:
    """Return how to handle elements of a type.

    Args:
        dtype: The type.
        op: What will be computed with them, if anything.

    Raises:
        UnsupportedError: This cannot be computed with elements of this type.

    Example:
        >>> elements_of(torch.bfloat16, Reduction.BXOR)
        Traceback (most recent call last):
        bireme.errors.UnsupportedError: bxor of torch.bfloat16: bits are combined of integers only
    """
    if op in _BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise UnsupportedError(f"{op} of {dtype}: bits are combined of integers only")
    if op in _ORDERED and dtype.is_complex:
        raise UnsupportedError(f"{op} of {dtype}: complex numbers have no order")
    if op is Reduction.AVG and dtype is torch.bool:
        raise UnsupportedError(f"{op} of {dtype}: use max, min or sum, or convert it first")
    if dtype in _NUMPY:
        return NumpyElements(dtype)
    if dtype in _WIDENED:
        return WidenedElements(dtype)
    raise UnsupportedError(f"elements of {dtype} are not exchanged by the backend bireme")


def raw_bytes(tensor: Tensor) -> "np.ndarray[Any, Any]":
    """Return a contiguous tensor's memory as bytes: all that copying needs to know.

    Example:
        >>> raw_bytes(torch.tensor([1.0, 2.0], dtype=torch.bfloat16)).tolist()
        [128, 63, 0, 64]
    """
    flat = tensor.detach().view(-1)
    if flat.dtype is torch.bool or flat.dtype is torch.uint8:
        return flat.numpy().view(np.uint8)
    return flat.view(torch.uint8).numpy()
