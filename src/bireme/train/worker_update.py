"""The store merges gradients, the optimizer runs here, on replica 0; the others copy its weights.

One copy of the user's own optimizer object means that clipping, closures, hooks and
``state_dict`` need nothing special. Weights go from replica 0 to the others directly, not through
the store: the store's value for a key is its merged gradient, and a copy between devices is all
that there is to do.
"""

from collections.abc import Sequence

import torch

from bireme.errors import StateError
from bireme.train import amp
from bireme.train.exchange import Exchange
from bireme.train.marks import Marks
from bireme.train.mode import Closure, Rider

__all__ = ("WorkerUpdate",)


class WorkerUpdate:
    """Merge in the store, update here. A :class:`~bireme.train.mode.Mode`.

    Args:
        optimizer: The user's optimizer, over parameters of replica 0.
        exchange: This trainer's part of the store.
        compressed: Whether the store compresses what is pushed.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, exchange: Exchange, *, compressed: bool
    ) -> None:
        self._optimizer = optimizer
        self._exchange = exchange
        self._lineup = exchange.lineup
        self._compressed = compressed
        self._marks = Marks(self._lineup)
        self._positions: Sequence[int] = ()

    @property
    def scales(self) -> bool:
        """Always: the scaler sees one replica only."""
        return True

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Merge what is not merged yet, update replica 0, copy its weights to the others."""
        weights = self._shares(counts, computed=closure is None)
        if closure is None:
            self._merge(weights)
            return self.update(None)

        def merged() -> float:
            # The optimizer has moved replica 0 since the last call.
            self._lineup.follow_first(self._positions)
            loss = closure()
            self._merge(weights)
            return loss

        return self.update(merged)

    def merge(self, counts: Sequence[float]) -> None:
        """Leave the merged gradients in every replica, marked as merged."""
        weights = self._shares(counts)
        if self._compressed and not self._is_finite(weights):
            # A residual would keep the overflow for ever. NaN everywhere tells a scaler to skip.
            self._overflow()
        else:
            self._merge(weights)
        self._marks.add(self._positions)

    def update(self, closure: Closure) -> float | None:
        """Update replica 0, copy its weights to the others."""
        loss = self._optimizer.step(closure)
        self._lineup.follow_first(self._positions)
        self._marks.clear()
        return loss

    def refresh(self, positions: Sequence[int]) -> None:
        """Take note of which parameters are optimized."""
        self._positions = positions

    def ride(self, rider: Rider) -> None:
        """Let every agreement on sample counts carry the words of ``rider`` too."""
        self._exchange.rider = rider

    def forget(self) -> None:
        """Forget which gradients are merged."""
        self._marks.clear()

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if any replica's do."""
        total = self._exchange.overflows if self._exchange.meets_others else None
        amp.share_overflow(self._lineup, self._positions, total)

    def scaled_step(
        self, scale: torch.Tensor | None, found_inf: float | torch.Tensor, counts: Sequence[float]
    ) -> float | None:
        """Skip if gradients overflowed, else unscale those of every replica and step."""
        if float(found_inf):
            self._marks.clear()
            return None
        marked = self._marks.any(self._positions)
        if marked and self._compressed:
            raise StateError(
                "gradients were compressed while they were scaled; with compression, call "
                "scaler.step(trainer) without trainer.allreduce_grads()"
            )
        if scale is not None:
            amp.unscale(self._lineup, self._positions, scale)
        elif len(self._lineup) > 1 and not self._marks.any_changed(self._positions):
            raise StateError(
                "scaler.unscale_(trainer) has unscaled the first replica only; call "
                "trainer.allreduce_grads() before it"
            )
        return self.step(None, counts)

    def pull_state(self) -> None:
        """Do nothing: the state is here."""

    def _shares(self, counts: Sequence[float], *, computed: bool = True) -> list[float]:
        return self._exchange.shares(counts, computed=computed)

    def _merge(self, weights: Sequence[float]) -> None:
        todo = self._marks.without(self._positions)
        if self._compressed and not self._is_finite(weights):
            raise StateError(
                "gradients are not finite, and a compressor would carry that into every later "
                "step; skip this step, or scale the loss with torch.amp.GradScaler"
            )
        self._exchange.merge(todo, weights)

    def _is_finite(self, weights: Sequence[float]) -> bool:
        return amp.is_finite(
            grad
            for params, weight in zip(self._lineup.params, weights, strict=True)
            for index in self._positions
            if weight and (grad := params[index].grad) is not None
        )

    def _overflow(self) -> None:
        for index in self._positions:
            params = self._lineup.same(index)
            if any(param.grad is not None for param in params):
                for param in params:
                    param.grad = torch.full_like(param, torch.nan)
