"""One replica, no store: the torch optimizer as it is, bit for bit."""

from collections.abc import Sequence
from typing import Any

import torch

from bireme.train.mode import Closure, Rider

__all__ = ("PlainUpdate",)


class PlainUpdate:
    """Calls the optimizer and nothing else. A :class:`~bireme.train.mode.Mode`.

    Args:
        optimizer: The user's optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def scales(self) -> bool:
        """Whether the optimizer itself unscales, as torch's fused ones do."""
        return bool(getattr(self._optimizer, "_step_supports_amp_scaling", False))

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Step; with one replica every count means the same."""
        return self._optimizer.step(closure)

    def merge(self, counts: Sequence[float]) -> None:
        """Do nothing: one gradient is its own mean."""

    def update(self, closure: Closure) -> float | None:
        """Step."""
        return self._optimizer.step(closure)

    def refresh(self, positions: Sequence[int]) -> None:
        """Do nothing: the optimizer knows its parameters."""

    def ride(self, rider: Rider) -> None:
        """Do nothing: there is nobody to agree with."""

    def forget(self) -> None:
        """Do nothing: nothing is remembered."""

    def share_overflow(self) -> None:
        """Do nothing: the scaler sees every gradient."""

    def scaled_step(
        self, scale: torch.Tensor | None, found_inf: float | torch.Tensor, counts: Sequence[float]
    ) -> float | None:
        """Hand scale and overflow to the optimizer, whose kernel deals with both."""
        fused: Any = self._optimizer
        fused.grad_scale, fused.found_inf = scale, found_inf
        try:
            return self._optimizer.step(None)
        finally:
            del fused.grad_scale, fused.found_inf

    def pull_state(self) -> None:
        """Do nothing: the state is here."""
