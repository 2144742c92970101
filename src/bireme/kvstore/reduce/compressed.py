"""Wraps a reducer so that what each source sends is compressed, with an error memory per source."""

from collections.abc import Sequence

import torch

from bireme.compress.base import Compressor, State
from bireme.errors import ConfigError
from bireme.kvstore.base import Key
from bireme.kvstore.reduce.base import Reducer, Sum
from bireme.update.layout import HALF_DTYPES

__all__ = ("CompressedReducer",)


class CompressedReducer:
    """Compresses every value on its device, then decompresses and adds where the sum is made.

    Sums of one value that was never pushed as a gradient (a pull) must go through ``inner``.

    Args:
        inner: What copies the finished sum to the other targets.
        compressor: Turns gradients into payloads.

    Source:
        MXNet 1.9 ``src/kvstore/comm.h``, ``CommDevice::ReduceCompressed``: quantised on each
        source, one residual per key and source, dequantised where the key lives.
    """

    def __init__(self, inner: Reducer, compressor: Compressor) -> None:
        self._inner = inner
        self._compressor = compressor
        self._states: dict[tuple[Key, int], _Source] = {}

    @property
    def compressor(self) -> Compressor:
        """The compressor in use."""
        return self._compressor

    def check(self, key: Key, values: Sequence[torch.Tensor]) -> None:
        """Refuse values that the compressor cannot take.

        Raises:
            UnsupportedError: The compressor cannot take this dtype.
            ConfigError: A position's values moved to another device, away from their residual.
        """
        for position, value in enumerate(values):
            known = self._states.get((key, position))
            if known is None:
                self._compressor.init(value.detach())
            elif known.device != value.device:
                raise ConfigError(
                    f"value {position} of key {key!r} moved from {known.device} to "
                    f"{value.device}, but its compression residual stays behind; call "
                    "set_gradient_compression again to start afresh"
                )

    def run(self, jobs: Sequence[Sum]) -> None:
        """Carry out every job."""
        with torch.no_grad():
            for job in jobs:
                self._run(job)

    def forget(self) -> None:
        """Drop all residuals."""
        self._states.clear()

    def _run(self, job: Sum) -> None:
        home = job.outs[0].device
        dtype = job.values[0].dtype
        wide = torch.float32 if dtype in HALF_DTYPES else dtype
        total = torch.empty(job.values[0].shape, dtype=wide, device=home)
        for position, value in enumerate(job.values):
            source = self._source(job.key, position, value)
            payload, source.state = self._compressor.compress(
                value.detach().contiguous(), source.state
            )
            moved = type(payload)(payload.data.to(home), payload.shape, payload.dtype)
            self._compressor.decompress(moved, total, accumulate=position > 0)
        self._inner.run([Sum(job.key, [total.to(dtype)], job.outs)])

    def _source(self, key: Key, position: int, value: torch.Tensor) -> "_Source":
        source = self._states.get((key, position))
        if source is None:
            source = _Source(value.device, self._compressor.init(value.detach()))
            self._states[key, position] = source
        return source


class _Source:
    __slots__ = ("device", "state")

    def __init__(self, device: torch.device, state: State) -> None:
        self.device = device
        self.state = state
