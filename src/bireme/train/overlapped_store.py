"""As :class:`~bireme.train.store_update.StoreUpdate`, while the model computes.

Gradients leave during the backward pass, and new weights are waited for layer by layer, in the
next forward. Chosen by :mod:`bireme.train.arrange`.
"""

import contextlib
from collections.abc import Sequence

import torch
from torch.optim import optimizer as torch_optimizer

from bireme.errors import StateError
from bireme.train.exchange import Exchange
from bireme.train.mode import Closure
from bireme.train.overlap import Overlap
from bireme.train.store_update import StoreUpdate

__all__ = ("OverlappedStoreUpdate",)


class OverlappedStoreUpdate(StoreUpdate):
    """Update in the store, overlapped. A :class:`~bireme.train.mode.Mode`.

    Args:
        optimizer: The user's optimizer, over parameters of replica 0; a class of ``torch.optim``.
        exchange: This trainer's part of the store.

    Raises:
        ConfigError: Another trainer uses the store too.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, exchange: Exchange) -> None:
        super().__init__(optimizer, exchange)
        self.overlap = Overlap(exchange, self._deliver, self._prepare, waits_at_gates=True)

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Push what has not left yet; the new weights arrive later."""
        overlap = self.overlap
        if closure is not None:
            overlap.refuse_left("a closure computes the gradients of the step anew")
            overlap.synchronize()
        with overlap.hold() if closure is not None else contextlib.nullcontext():
            loss = super().step(closure, counts)
        return loss

    def refresh(self, positions: Sequence[int]) -> None:
        """Take note of which parameters are optimized."""
        self.overlap.refuse_left("other parameters are to be optimized from now on")
        self.overlap.synchronize()
        self.overlap.watch(positions)
        super().refresh(positions)

    def forget(self) -> None:
        """Refuse to clear gradients that have left: their step would be half taken."""
        self.overlap.refuse_left("gradients are to be cleared without a step")

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if any replica's do."""
        self.overlap.refuse_left("a GradScaler looks at all gradients before the step")
        super().share_overflow()

    def pull_state(self) -> None:
        """Bring the optimizer's state from the store into the user's optimizer."""
        self.overlap.synchronize()
        super().pull_state()

    def _push_state(self) -> None:
        """Let the state and numbers of the user's optimizer be those of the store."""
        self.overlap.refuse_left("the optimizer's state is to be replaced")
        self.overlap.synchronize()
        super()._push_state()

    def _shares(self, counts: Sequence[float]) -> list[float]:
        return self.overlap.shares(counts)

    def _pushpull(self, weights: Sequence[float]) -> None:
        overlap = self.overlap
        left = overlap.seal()
        if left:
            self._refuse_changes()
        else:
            self._prepare()
        found = self._exchange.gather([i for i in self._positions if i not in left], weights)
        overlap.arrivals.land(found.rows_positions)
        overlap.send(found.dense_positions, weights)
        if found.rows:
            keys = self._exchange.keys(found.rows_positions)
            outs = [[p.detach() for p in self._lineup.same(i)] for i in found.rows_positions]
            self._store.push(keys, found.rows)
            self._store.pull(keys, outs)
            self._note(found.rows_positions)
        overlap.release()
        if self._optimizer._optimizer_step_post_hooks or _hooks_for_all():
            # A hook after the step, such as an average of weights, looks at new weights.
            overlap.synchronize()

    def _prepare(self) -> None:
        # What came for parameters that this worker did not use must not count as changed here.
        self.overlap.synchronize()
        self._send_numbers()
        self._send_weights()

    def _refuse_changes(self) -> None:
        """Refuse a step that a script has prepared after its first gradient had left."""
        if self._numbers_changed():
            raise StateError(
                "hyper-parameters such as the learning rate were changed between the backward "
                "pass and step(), and the servers have updated with those from before; change "
                "them before the backward pass, or make the trainer without overlap"
            )
        changed = [self._lineup.names[index] for index in self._moved()]
        if changed:
            raise StateError(
                f"parameter {changed[0]!r} was changed between the backward pass and step(), "
                "when its gradient had left; change it after step() and trainer.synchronize()"
            )

    def _deliver(self, index: int, result: torch.Tensor) -> None:
        with torch.no_grad():
            for param in self._lineup.same(index):
                param.copy_(result)
        self._note([index])


def _hooks_for_all() -> bool:
    return bool(torch_optimizer._global_optimizer_post_hooks)
