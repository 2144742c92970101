"""The compressor interface: pure functions over explicit state.

A compressor turns a dense gradient into a smaller payload and back. Everything that it must
remember between two calls for the same key and source (the residual of error feedback) is a
``State`` that the caller keeps, so one compressor object serves any number of keys and threads.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import torch

__all__ = ("Compressor", "Params", "Payload", "Quantizer", "State")

Params: TypeAlias = dict[str, str | float | bool]
"""What :func:`bireme.compress.create` reads: ``type`` and that type's parameters."""

State: TypeAlias = torch.Tensor | None
"""What a compressor remembers for one (key, source): a residual of the gradient's shape, or
``None`` for a compressor without memory."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A compressed gradient.

    ``data`` is what travels; the rest says how to read it.
    """

    data: torch.Tensor
    """One-dimensional, contiguous: uint8 for packed codes, float16 or bfloat16 for casts."""

    shape: torch.Size
    """Shape of the gradient that was compressed."""

    dtype: torch.dtype
    """Element type of the gradient that was compressed."""

    @property
    def size_bytes(self) -> int:
        """Size of what travels."""
        return self.data.numel() * self.data.element_size()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "Payload":
        """Return this payload on ``device``: itself when it is there already.

        Args:
            device: Where to copy ``data``.
            non_blocking: As for :meth:`torch.Tensor.to`.
        """
        data = self.data.to(device, non_blocking=non_blocking)
        return self if data is self.data else Payload(data, self.shape, self.dtype)


@runtime_checkable
class Compressor(Protocol):
    """Turns gradients into payloads and back.

    Guarantees:
        ``compress`` never changes ``grad``; it may reuse the memory of ``state`` for the state
        that it returns, so the caller must keep only the returned one. Both directions run on
        the device of their input. For error feedback, ``decompress(payload) + new_state ==
        grad + state`` up to rounding of one addition. Threads may share one compressor, as long
        as a state is used by one at a time. A gradient that is NaN or infinite never spoils the
        state: each compressor says what such an element travels as, and keeps its residual finite.
    """

    @property
    def name(self) -> str:
        """The ``type`` under which :func:`bireme.compress.create` knows it."""

    def init(self, grad: torch.Tensor) -> State:
        """Return the state for a key whose gradients look like ``grad``.

        Raises:
            UnsupportedError: The compressor cannot take this dtype or layout.
        """

    def compress(self, grad: torch.Tensor, state: State) -> tuple[Payload, State]:
        """Return what travels for ``grad`` and the state for the next call.

        Raises:
            ConfigError: ``grad`` does not have the shape, dtype or device of ``state``. Nothing
                has changed then.
            UnsupportedError: The compressor cannot take this dtype or layout.
        """

    def decompress(
        self, payload: Payload, out: torch.Tensor | None = None, *, accumulate: bool = False
    ) -> torch.Tensor:
        """Return the gradient that ``payload`` stands for.

        Args:
            payload: What ``compress`` returned, possibly moved with :meth:`Payload.to`.
            out: Contiguous tensor of the payload's shape, on its device, to write into. Its
                dtype is the payload's; for half types float32 and float64 will do too. A new
                tensor when ``None``.
            accumulate: Add to ``out`` instead of overwriting it.

        Raises:
            ConfigError: ``payload`` was made by another compressor or is damaged, ``out`` does
                not fit it, or ``accumulate`` is asked for without ``out``.
        """

    def payload_bytes(self, numel: int) -> int:
        """Return the size of the payload of ``numel`` elements, in bytes."""

    def to_params(self) -> Params:
        """Return the plain numbers and names from which ``create`` makes an equal compressor."""


@runtime_checkable
class Quantizer(Protocol):
    """A lossy code without memory: what :class:`ErrorFeedback` wraps.

    ``encode`` is the one primitive because a fused kernel can read gradient and residual, write
    the code and leave the error behind in a single pass.
    """

    @property
    def name(self) -> str:
        """The ``type`` under which :func:`bireme.compress.create` knows it."""

    def check(self, grad: torch.Tensor) -> None:
        """Refuse a gradient that this code has no words for.

        Raises:
            UnsupportedError: The code cannot take this dtype, layout or device.
        """

    def encode(self, grad: torch.Tensor, residual: torch.Tensor | None) -> Payload:
        """Return the code of ``grad + residual``.

        Args:
            grad: A gradient that :meth:`check` accepts, of any strides; not changed.
            residual: Shape, dtype and device of ``grad``, contiguous; changed in place to the
                error that the code leaves (``grad + residual - decode(code)``). ``None`` for a
                code without memory.

        Raises:
            ConfigError: ``residual`` does not go with ``grad``. Nothing has changed then.
            UnsupportedError: As :meth:`check`.
        """

    def decompress(
        self, payload: Payload, out: torch.Tensor | None = None, *, accumulate: bool = False
    ) -> torch.Tensor:
        """As :meth:`Compressor.decompress`."""

    def payload_bytes(self, numel: int) -> int:
        """As :meth:`Compressor.payload_bytes`."""

    def to_params(self) -> Params:
        """As :meth:`Compressor.to_params`."""
