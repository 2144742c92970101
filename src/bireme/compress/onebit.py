"""The 1bit code: each element travels as plus one or minus one.

Meant for use under :class:`ErrorFeedback`, which keeps what the sign leaves out.
:func:`bireme.compress.create` makes one for ``{"type": "1bit"}``.
"""

import math
import warnings
from dataclasses import dataclass

import torch

from bireme.compress.base import Params, Payload
from bireme.compress.bits import bits_for
from bireme.compress.checks import (
    as_float32,
    check_grad,
    check_payload,
    check_state,
    check_threshold,
    take_out,
)

__all__ = ("OneBit",)

_DTYPES = (torch.float32,)
_REMEDY = "cast it with float(); types 'fp16' and 'bf16' take float64 and half gradients"


@dataclass(frozen=True, slots=True)
class OneBit:
    """A quantizer with 1 bit an element, 32 times smaller than float32.

    With s = gradient + residual: s > threshold travels as +1 (bit 1), anything else as -1
    (bit 0), and what is left of s is the new residual. The magnitude is 1 whatever the threshold
    and the gradients are, so scale the loss or the learning rate to suit.

    One bit leaves no code for a sum that is NaN or infinite. Such an element counts as gradient 0
    for the call: its residual alone decides the bit, and a ``RuntimeWarning`` says how many there
    were. On CUDA the count makes each call wait for the device.

    Args:
        threshold: Finite, any sign, in the unit of the gradient: where +1 begins.

    Raises:
        ConfigError: ``threshold`` is not a number that float32 can hold.

    Guarantees:
        For finite input the bytes and residuals are those of MXNet, on every device.

    Example:
        >>> code = OneBit(threshold=0.5)
        >>> residual = torch.zeros(3)
        >>> payload = code.encode(torch.tensor([0.75, 0.5, -3.0]), residual)
        >>> code.decompress(payload)
        tensor([ 1., -1., -1.])
        >>> residual
        tensor([-0.2500,  1.5000, -2.0000])

    Source:
        MXNet 2.0, ``kvstore`` gradient compression type ``1bit``; byte layout too. Seide et al.,
        "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
        Training of Speech DNNs", Interspeech 2014, section 3.
    """

    threshold: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", check_threshold(self.threshold, self.name))

    @property
    def name(self) -> str:
        """The ``type`` under which :func:`bireme.compress.create` knows it."""
        return "1bit"

    def check(self, grad: torch.Tensor) -> None:
        """As :meth:`bireme.compress.Quantizer.check`: dense float32 only."""
        check_grad(grad, self.name, _DTYPES, _REMEDY)

    def encode(self, grad: torch.Tensor, residual: torch.Tensor | None) -> Payload:
        """As :meth:`bireme.compress.Quantizer.encode`."""
        self.check(grad)
        if residual is None:
            residual = torch.zeros(grad.shape, dtype=grad.dtype, device=grad.device)
        check_state(grad, residual, self.name)
        data = torch.empty(self.payload_bytes(grad.numel()), dtype=torch.uint8, device=grad.device)
        num_bad = bits_for(grad.device).encode_onebit(
            grad.detach().reshape(-1), residual.detach().view(-1), data, as_float32(self.threshold)
        )
        if num_bad:
            warnings.warn(
                f"{num_bad} of {grad.numel()} gradient elements were NaN or infinite, which 1bit "
                "cannot send; they counted as 0 in this step. Skip such steps, clip the "
                "gradients, or use 2bit, which passes NaN on",
                RuntimeWarning,
                stacklevel=2,
            )
        return Payload(data, grad.shape, grad.dtype)

    def decompress(
        self, payload: Payload, out: torch.Tensor | None = None, *, accumulate: bool = False
    ) -> torch.Tensor:
        """As :meth:`bireme.compress.Compressor.decompress`."""
        size_bytes = self.payload_bytes(math.prod(payload.shape))
        check_payload(payload, self.name, torch.uint8, size_bytes, _DTYPES)
        target = take_out(payload, out, accumulate, _DTYPES)
        bits_for(target.device).decode_onebit(payload.data, target.view(-1), accumulate)
        return target if out is None else out

    def payload_bytes(self, numel: int) -> int:
        """Return 4 bytes for each 32 elements begun."""
        return 4 * -(-numel // 32)

    def to_params(self) -> Params:
        """As :meth:`bireme.compress.Compressor.to_params`."""
        return {"type": self.name, "threshold": self.threshold}
