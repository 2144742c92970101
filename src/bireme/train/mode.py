"""The interface behind which a trainer's three ways of working stand.

:class:`~bireme.train.plain_update.PlainUpdate` works without a store,
:class:`~bireme.train.worker_update.WorkerUpdate` merges gradients in a store and updates here,
:class:`~bireme.train.store_update.StoreUpdate` lets the store update.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import torch

__all__ = ("Closure", "Mode", "Rider")

Closure: TypeAlias = Callable[[], float] | None
"""Computes the loss and the gradients of every replica again, as ``torch.optim`` calls it."""


class Rider(Protocol):
    """Something that workers tell each other along with their sample counts."""

    @property
    def waits(self) -> bool:
        """Whether there is something to tell now; alike on all workers."""

    @property
    def expected(self) -> tuple[float, float]:
        """The samples of this worker and of all in the step that comes now; 0 if not known."""

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context in which time passes that is not this worker's own."""

    def word(self) -> list[float]:
        """Return what this worker has to say."""

    def hear(self, total: Sequence[float]) -> None:
        """Take in the sum of all workers' words."""


class Mode(Protocol):
    """Turns gradients into new weights, the same on every replica."""

    @property
    def scales(self) -> bool:
        """Whether a ``GradScaler`` must leave unscaling to :meth:`scaled_step`."""

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Merge what is not merged yet and update.

        Args:
            closure: Called as the optimizer pleases, or ``None``.
            counts: Samples behind each replica's gradients.

        Returns:
            What the closure returned.
        """

    def merge(self, counts: Sequence[float]) -> None:
        """Merge gradients only.

        Raises:
            StateError: The store updates as it merges.
        """

    def update(self, closure: Closure) -> float | None:
        """Update with the gradients as they are.

        Raises:
            StateError: The store updates as it merges.
        """

    def refresh(self, positions: Sequence[int]) -> None:
        """Take note of which parameters are optimized: in the order of the optimizer's groups."""

    def ride(self, rider: Rider) -> None:
        """Let every agreement on sample counts carry the words of ``rider`` too."""

    def forget(self) -> None:
        """Forget that gradients were merged: they are being cleared."""

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if any replica's do."""

    def scaled_step(
        self, scale: torch.Tensor | None, found_inf: float | torch.Tensor, counts: Sequence[float]
    ) -> float | None:
        """Step for a ``GradScaler``: not at all if gradients overflowed, else unscaled.

        Args:
            scale: The scale, one element; ``None`` when replica 0's gradients are unscaled.
            found_inf: Not 0 when replica 0's gradients are not finite.
            counts: As in :meth:`step`.

        Raises:
            StateError: Replica 0's gradients were unscaled before they were merged.
        """

    def pull_state(self) -> None:
        """Bring the optimizer's state here, as the optimizer's ``state_dict()`` does."""
