"""The fp16 and bf16 casts: each element travels in 16 bits instead of 32 or 64.

:func:`bireme.compress.create` makes one for ``{"type": "fp16"}`` and ``{"type": "bf16"}``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from bireme.compress.base import Params, Payload, State
from bireme.compress.checks import check_grad, check_payload, check_state, take_out
from bireme.errors import ConfigError

__all__ = ("Half",)

_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_WIDE = (torch.float32, torch.float64)
_CHUNK = 1 << 15  # also the length up to which torch starts no threads


@dataclass(frozen=True, slots=True)
class Half:
    """A cast to 16 bits, rounded as torch does; a compressor, and a quantizer too.

    Warning:
        float16 ends at 65504, and **a larger gradient travels as infinity**, which the receiver
        adds up like any other number. Small ones vanish too: below 6e-5 float16 loses digits, and
        below 3e-8 everything. Scale the loss (``torch.amp.GradScaler``) so that gradients fit, or
        use bfloat16, which has float32's range and 3 significant digits less 1. Under
        :class:`ErrorFeedback` a finite sum never becomes infinite: it travels as the largest
        finite number, and the rest stays in the residual for later.

    NaN and infinity travel as themselves; under :class:`ErrorFeedback` the residual of such an
    element stays as it was.

    Args:
        dtype: ``torch.float16`` or ``torch.bfloat16``. Gradients may be float32, float64 or of
            this dtype already (they travel unchanged).

    Raises:
        ConfigError: ``dtype`` is neither.

    Example:
        >>> cast = Half(torch.float16)
        >>> payload, state = cast.compress(torch.tensor([0.1, 1.0, 1e6]), cast.init(torch.ones(3)))
        >>> payload.data
        tensor([0.1000, 1.0000,    inf], dtype=torch.float16)
        >>> cast.decompress(payload)
        tensor([0.1000, 1.0000,    inf])

    Source:
        Horovod 0.28.1, ``Compression.fp16``; the residual: Seide et al., "1-Bit Stochastic
        Gradient Descent", Interspeech 2014, section 3.
    """

    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        if self.dtype not in _NAMES:
            raise ConfigError(
                f"Half casts to torch.float16 or torch.bfloat16, and not to {self.dtype!r}"
            )

    @property
    def name(self) -> str:
        """The ``type`` under which :func:`bireme.compress.create` knows it: fp16 or bf16."""
        return _NAMES[self.dtype]

    def check(self, grad: torch.Tensor) -> None:
        """As :meth:`bireme.compress.Quantizer.check`: dense float32, float64 or ``dtype``."""
        check_grad(grad, self.name, (*_WIDE, self.dtype), "do not compress this key")

    def init(self, grad: torch.Tensor) -> State:
        """Return ``None``: a cast remembers nothing."""
        self.check(grad)
        return None

    def compress(self, grad: torch.Tensor, state: State) -> tuple[Payload, State]:
        """As :meth:`bireme.compress.Compressor.compress`; ``state`` is ``None``."""
        if state is not None:
            raise ConfigError(
                f"{self.name} keeps no state and got a tensor of shape {tuple(state.shape)}; pass "
                "None, or wrap it as ErrorFeedback(Half(...)) to keep what the cast rounds away"
            )
        return self.encode(grad, None), None

    def encode(self, grad: torch.Tensor, residual: torch.Tensor | None) -> Payload:
        """As :meth:`bireme.compress.Quantizer.encode`."""
        self.check(grad)
        grad = grad.detach()
        if residual is None:
            data = grad.reshape(-1).to(self.dtype, copy=True)
        else:
            check_state(grad, residual, self.name)
            data = self._encode_sum(grad.reshape(-1), residual.detach().view(-1))
        return Payload(data, grad.shape, grad.dtype)

    def decompress(
        self, payload: Payload, out: torch.Tensor | None = None, *, accumulate: bool = False
    ) -> torch.Tensor:
        """As :meth:`bireme.compress.Compressor.decompress`."""
        num_words = math.prod(payload.shape)
        check_payload(payload, self.name, self.dtype, num_words, (*_WIDE, self.dtype))
        into = (payload.dtype, *(dtype for dtype in _WIDE if dtype != payload.dtype))
        target = take_out(payload, out, accumulate, into)
        if accumulate:
            for total, data in _chunks(target.view(-1), payload.data):
                total.add_(data)
        else:
            target.view(-1).copy_(payload.data)
        return target if out is None else out

    def payload_bytes(self, numel: int) -> int:
        """Return 2 bytes an element."""
        return 2 * numel

    def to_params(self) -> Params:
        """As :meth:`bireme.compress.Compressor.to_params`."""
        return {"type": self.name}

    def _encode_sum(self, grad: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        data = torch.empty(grad.numel(), dtype=self.dtype, device=grad.device)
        limit = torch.finfo(self.dtype).max
        for part, kept, sent in _chunks(grad, residual, data):
            total = kept + part
            finite = total.abs() < torch.inf
            sent.copy_(torch.where(finite, total.clamp(-limit, limit), total))
            torch.where(finite, total.sub_(sent), kept, out=kept)
        return data


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the same pieces of flat tensors, small enough that temporaries stay in a CPU's cache.

    Without this, torch's temporaries cost a CPU ten times the work itself: fresh pages are mapped
    for each. A GPU keeps its memory and gets everything in one piece.
    """
    length = len(tensors[0])
    step = _CHUNK if tensors[0].device.type == "cpu" else max(length, 1)
    for start in range(0, length, step):
        yield tuple(tensor[start : start + step] for tensor in tensors)
