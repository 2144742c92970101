"""What :meth:`bireme.Module.fit` tells its callbacks, and what a callback is.

Called with by :mod:`bireme.train.fitting`; read by :mod:`bireme.train.callbacks` and by users'
own callbacks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from bireme.train.metrics import MetricSet
    from bireme.train.module import Module

__all__ = ("BatchCallback", "BatchEnd", "EpochCallback", "EpochEnd")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """One training batch is done and the parameters are updated."""

    module: "Module"
    """The module that trains."""

    epoch: int
    """Number of the epoch, from ``begin_epoch``."""

    num_epoch: int
    """The epoch that will not start: ``fit``'s ``num_epoch``."""

    batch: int
    """Number of the batch in this epoch, from 0."""

    num_batches: int | None
    """Batches in an epoch; ``None`` where the data does not know its length."""

    num_samples: int
    """Samples in this batch."""

    running: "MetricSet"
    """Loss and metrics of this epoch so far; reading them makes a GPU wait."""

    @property
    def loss(self) -> float:
        """Mean training loss of this epoch so far."""
        return self.running.loss

    @property
    def metrics(self) -> dict[str, float]:
        """Training metrics of this epoch so far, by name."""
        return self.running.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """One epoch is done: trained, buffers in step, and evaluated."""

    module: "Module"
    """The module that trains."""

    epoch: int
    """Number of the epoch that is done, from ``begin_epoch``."""

    num_epoch: int
    """The epoch that will not start: ``fit``'s ``num_epoch``."""

    num_samples: int
    """Samples trained on in this epoch."""

    duration_s: float
    """Time spent training in this epoch, in seconds; evaluation excluded."""

    loss: float
    """Mean training loss of this epoch."""

    metrics: Mapping[str, float]
    """Training metrics of this epoch, by name."""

    evaluation: Mapping[str, float]
    """Metrics on ``eval_data``, by name; empty without ``eval_data``."""

    sample_shares: tuple[float, ...]
    """Part of this epoch's samples that each context trained on."""

    @property
    def samples_per_s(self) -> float:
        """Training samples per second."""
        return self.num_samples / self.duration_s if self.duration_s > 0 else float("inf")


BatchCallback: TypeAlias = Callable[[BatchEnd], Any]
"""Called after each training batch; what it returns does not matter."""

EpochCallback: TypeAlias = Callable[[EpochEnd], Any]
"""Called after each epoch; returning ``True`` ends the training.

``fit`` calls ``close()`` of each callback that has it when it ends, also after an error."""
