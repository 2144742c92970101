"""As :class:`~bireme.train.worker_update.WorkerUpdate`, while the backward pass runs.

Gradients leave during the backward pass; the step waits for all sums, since an optimizer steps
once for all parameters. Chosen by :mod:`bireme.train.arrange`.
"""

from collections.abc import Sequence

import torch

from bireme.errors import StateError
from bireme.train.exchange import Exchange
from bireme.train.mode import Closure
from bireme.train.overlap import Overlap
from bireme.train.worker_update import WorkerUpdate

__all__ = ("OverlappedWorkerUpdate",)


class OverlappedWorkerUpdate(WorkerUpdate):
    """Merge in the store during the backward pass, update here.

    A :class:`~bireme.train.mode.Mode`.

    Args:
        optimizer: The user's optimizer, over parameters of replica 0.
        exchange: This trainer's part of the store.
        compressed: Whether the store compresses what is pushed.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, exchange: Exchange, *, compressed: bool
    ) -> None:
        super().__init__(optimizer, exchange, compressed=compressed)
        self.overlap = Overlap(
            exchange, self._deliver, lambda: None, waits_at_gates=False, refuse_infinite=compressed
        )

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Merge what is not merged yet, update replica 0, copy its weights to the others."""
        if closure is None:
            return super().step(None, counts)
        self.overlap.refuse_left("a closure computes the gradients of the step anew")
        with self.overlap.hold():
            return super().step(closure, counts)

    def update(self, closure: Closure) -> float | None:
        """Update replica 0, copy its weights to the others."""
        self.overlap.refuse_left("update() takes gradients as they are, merged or not")
        return super().update(closure)

    def refresh(self, positions: Sequence[int]) -> None:
        """Take note of which parameters are optimized."""
        self.overlap.refuse_left("other parameters are to be optimized from now on")
        self.overlap.watch(positions)
        super().refresh(positions)

    def forget(self) -> None:
        """Refuse to clear gradients that have left: the other workers count on them."""
        self.overlap.refuse_left("gradients are to be cleared without a step")
        super().forget()

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if any replica's do."""
        self.overlap.refuse_left(
            "a GradScaler looks at gradients before they are merged, unless "
            "trainer.allreduce_grads() was called before"
        )
        super().share_overflow()

    def _shares(self, counts: Sequence[float], *, computed: bool = True) -> list[float]:
        return self.overlap.shares(counts, computed=computed)

    def _merge(self, weights: Sequence[float]) -> None:
        overlap = self.overlap
        left = overlap.seal()
        todo = [index for index in self._marks.without(self._positions) if index not in left]
        if self._compressed and not self._is_finite(weights):
            raise StateError(
                "gradients are not finite, and a compressor would carry that into every later "
                "step; skip this step, or scale the loss with torch.amp.GradScaler"
            )
        self._exchange.merge(todo, weights)
        overlap.release()
        overlap.synchronize()

    def _deliver(self, index: int, result: torch.Tensor) -> None:
        with torch.no_grad():
            for param in self._lineup.same(index):
                assert param.grad is not None
                param.grad.copy_(result)
