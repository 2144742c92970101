"""The 2bit code: each element travels as plus threshold, minus threshold or nothing.

What fits none of the three stays in the residual that :class:`ErrorFeedback` keeps, so nothing is
lost, only late. :func:`bireme.compress.create` makes one for ``{"type": "2bit"}``.
"""

import math
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
from bireme.errors import ConfigError

__all__ = ("TwoBit",)

_DTYPES = (torch.float32,)
_REMEDY = "cast it with float(); types 'fp16' and 'bf16' take float64 and half gradients"


@dataclass(frozen=True, slots=True)
class TwoBit:
    """A quantizer with 2 bits an element, 16 times smaller than float32.

    With s = gradient + residual and t = threshold: s >= t travels as +t (code 11), s <= -t as -t
    (code 10), anything between as 0 (code 00), and what is left of s is the new residual. At most
    t travels per element and call, so choose t near the size of the gradients worth sending.

    A sum that is NaN or infinite travels as code 01, which decodes to NaN, and its residual stays
    as it was. So the receiver sees that the step went wrong, as it would without compression, and
    a step that is then skipped (as by a gradient scaler) leaves no trace.

    Args:
        threshold: Finite, > 0, in the unit of the gradient.

    Raises:
        ConfigError: ``threshold`` is not a number, or not positive and finite in float32.

    Guarantees:
        For finite input the bytes and residuals are those of MXNet, on every device.

    Example:
        >>> code = TwoBit(threshold=0.5)
        >>> residual = torch.zeros(4)
        >>> payload = code.encode(torch.tensor([0.7, -0.5, 0.25, 2.0]), residual)
        >>> code.decompress(payload)
        tensor([ 0.5000, -0.5000,  0.0000,  0.5000])
        >>> residual
        tensor([0.2000, 0.0000, 0.2500, 1.5000])
        >>> f"{payload.data[0].item():08b}", payload.size_bytes
        ('11100011', 4)

    Source:
        MXNet 1.9.1, ``kvstore`` gradient compression type ``2bit``; byte layout too. Its NaN
        travels as 00 and stays in the residual for ever; ours is the rule above. Without
        feedback: Wen et al., "TernGrad", NIPS 2017, section 3.
    """

    threshold: float = 0.5

    def __post_init__(self) -> None:
        threshold = check_threshold(self.threshold, self.name)
        if as_float32(threshold) <= 0:
            raise ConfigError(
                f"2bit threshold must be greater than 0 in float32, got {self.threshold!r}"
            )
        object.__setattr__(self, "threshold", threshold)

    @property
    def name(self) -> str:
        """The ``type`` under which :func:`bireme.compress.create` knows it."""
        return "2bit"

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
        bits_for(grad.device).encode_twobit(
            grad.detach().reshape(-1), residual.detach().view(-1), data, as_float32(self.threshold)
        )
        return Payload(data, grad.shape, grad.dtype)

    def decompress(
        self, payload: Payload, out: torch.Tensor | None = None, *, accumulate: bool = False
    ) -> torch.Tensor:
        """As :meth:`bireme.compress.Compressor.decompress`."""
        size_bytes = self.payload_bytes(math.prod(payload.shape))
        check_payload(payload, self.name, torch.uint8, size_bytes, _DTYPES)
        target = take_out(payload, out, accumulate, _DTYPES)
        bits_for(target.device).decode_twobit(
            payload.data, target.view(-1), as_float32(self.threshold), accumulate
        )
        return target if out is None else out

    def payload_bytes(self, numel: int) -> int:
        """Return 4 bytes for each 16 elements begun."""
        return 4 * -(-numel // 16)

    def to_params(self) -> Params:
        """As :meth:`bireme.compress.Compressor.to_params`."""
        return {"type": self.name, "threshold": self.threshold}
