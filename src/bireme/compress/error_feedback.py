"""Error feedback: what a code leaves out of one gradient is added to the next.

The one place that knows about residuals' lives; the codes only change the one they are given.
:func:`bireme.compress.create` puts it around 2bit and 1bit always, and around casts on request.
"""

from dataclasses import dataclass

import torch

from bireme.compress.base import Compressor, Params, Payload, Quantizer, State
from bireme.errors import ConfigError

__all__ = ("ErrorFeedback",)


@dataclass(frozen=True, slots=True)
class ErrorFeedback:
    """Makes a compressor of a quantizer by keeping the error that it leaves.

    The state is a residual of the gradient's shape, dtype and device. Over any number of steps
    everything decompressed plus the residual is everything compressed, up to rounding.

    Args:
        quantizer: The code to wrap, such as :class:`TwoBit`, :class:`OneBit` or :class:`Half`.

    Raises:
        ConfigError: ``quantizer`` is not a :class:`Quantizer`.

    Example:
        >>> from bireme.compress import TwoBit
        >>> compressor = ErrorFeedback(TwoBit(threshold=0.5))
        >>> grad = torch.tensor([0.4, -2.0])
        >>> state = compressor.init(grad)
        >>> for _ in range(2):
        ...     payload, state = compressor.compress(grad, state)
        ...     compressor.decompress(payload)
        tensor([ 0.0000, -0.5000])
        tensor([ 0.5000, -0.5000])
        >>> state
        tensor([ 0.3000, -3.0000])

    Source:
        Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014, section 3;
        Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019, algorithm 1.
    """

    quantizer: Quantizer

    def __post_init__(self) -> None:
        if isinstance(self.quantizer, type) or not isinstance(self.quantizer, Quantizer):
            raise ConfigError(
                f"ErrorFeedback wraps a quantizer such as TwoBit(0.5), and got {self.quantizer!r}"
            )

    @property
    def name(self) -> str:
        """The ``type`` under which :func:`bireme.compress.create` knows it."""
        return self.quantizer.name

    def init(self, grad: torch.Tensor) -> State:
        """Return a residual of zeros for a key whose gradients look like ``grad``."""
        self.quantizer.check(grad)
        return torch.zeros(grad.shape, dtype=grad.dtype, device=grad.device)

    def compress(self, grad: torch.Tensor, state: State) -> tuple[Payload, State]:
        """As :meth:`bireme.compress.Compressor.compress`; changes ``state`` and returns it."""
        if state is None:
            raise ConfigError(
                f"{self.name} with error feedback needs the state of this key and got None; make "
                "it once with init(grad), then pass what the previous compress() returned"
            )
        return self.quantizer.encode(grad, state), state

    def decompress(
        self, payload: Payload, out: torch.Tensor | None = None, *, accumulate: bool = False
    ) -> torch.Tensor:
        """As :meth:`bireme.compress.Compressor.decompress`."""
        return self.quantizer.decompress(payload, out, accumulate=accumulate)

    def payload_bytes(self, numel: int) -> int:
        """As :meth:`bireme.compress.Compressor.payload_bytes`."""
        return self.quantizer.payload_bytes(numel)

    def to_params(self) -> Params:
        """As :meth:`bireme.compress.Compressor.to_params`."""
        params = self.quantizer.to_params()
        # The type of a code that also works alone names it alone.
        alone = isinstance(self.quantizer, Compressor)
        return params | {"error_feedback": True} if alone else params
