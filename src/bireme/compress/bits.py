"""Chooses the code that packs bits, by where the tensors are.

:class:`Bits` is the interface that :mod:`bireme.compress.bits_numba` (CPU) and
:mod:`bireme.compress.bits_torch` (CUDA) satisfy as modules; both write the same bytes. The
quantizers call it with tensors that are already checked, flat and contiguous.
"""

import importlib
from typing import Protocol, cast

import torch

from bireme.errors import UnsupportedError

__all__ = ("Bits", "bits_for")

_MODULES = {"cpu": "bireme.compress.bits_numba", "cuda": "bireme.compress.bits_torch"}


class Bits(Protocol):
    """Four passes over flat tensors of ``n`` elements on one device.

    ``grad``, ``residual`` and ``out`` are float32 of length ``n``; ``data`` is uint8 of length
    ``4 * ceil(n / 16)`` for 2bit and ``4 * ceil(n / 32)`` for 1bit, bits past ``n`` zero.
    """

    def encode_twobit(
        self, grad: torch.Tensor, residual: torch.Tensor, data: torch.Tensor, threshold: float
    ) -> None:
        """Write the codes of ``grad + residual`` and leave the error in ``residual``."""

    def decode_twobit(
        self, data: torch.Tensor, out: torch.Tensor, threshold: float, accumulate: bool
    ) -> None:
        """Write what the codes stand for to ``out``, or add it."""

    def encode_onebit(
        self, grad: torch.Tensor, residual: torch.Tensor, data: torch.Tensor, threshold: float
    ) -> int:
        """As :meth:`encode_twobit`; return how many elements were not finite."""

    def decode_onebit(self, data: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
        """As :meth:`decode_twobit`."""


def bits_for(device: torch.device) -> Bits:
    """Return the implementation for tensors on ``device``.

    It is imported here and not at the top: numba takes half a second to import, and only those
    who compress on a CPU need it.

    Raises:
        UnsupportedError: There is none for this type of device.
    """
    try:
        name = _MODULES[device.type]
    except KeyError:
        raise UnsupportedError(
            f"no bit codes for device {device}; there are some for {', '.join(_MODULES)}"
        ) from None
    return cast("Bits", importlib.import_module(name))
