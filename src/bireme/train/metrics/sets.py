"""The metrics of one run over data, side by side."""

from typing import Any

import torch

from bireme.errors import ConfigError
from bireme.train.metrics.adapted import CustomMetric
from bireme.train.metrics.base import MetricLike, UpdateComputeReset
from bireme.train.metrics.factory import create

__all__ = ("MetricSet",)


class MetricSet:
    """The metrics of one run over data, and the mean loss beside them.

    Args:
        metric: See :data:`MetricLike`; ``None`` for no metric. ``"loss"`` asks for the loss.

    Raises:
        ConfigError: As :func:`create`; or two metrics share a name.

    Example:
        >>> found = MetricSet(["acc", "loss"])
        >>> found.update(torch.eye(2), torch.tensor([0, 0]), torch.tensor(0.25), 2)
        >>> found.values()
        {'loss': 0.25, 'accuracy': 0.5}
    """

    def __init__(self, metric: MetricLike | None) -> None:
        entries: list[Any] = [] if metric is None else _flatten(metric)
        # By type first: metrics of torchmetrics answer == with another metric, which is true.
        named = [isinstance(entry, str) and entry == "loss" for entry in entries]
        self.wants_loss = any(named)
        self._metrics = [
            create(entry) for entry, is_loss in zip(entries, named, strict=True) if not is_loss
        ]
        self._loss = CustomMetric(lambda pred, label: 0.0, "loss")
        names = ["loss", *(metric.name for metric in self._metrics)]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two metrics are called {name!r}; give each its own name")

    @property
    def wants_predictions(self) -> bool:
        """Whether there is more to compute than the loss."""
        return bool(self._metrics)

    def reset(self) -> None:
        """Forget every batch."""
        self._loss.reset()
        for metric in self._metrics:
            metric.reset()

    def update(
        self, pred: Any, label: Any, loss: torch.Tensor | float | None, num_samples: int
    ) -> None:
        """Add one batch.

        Args:
            pred: What the net returned.
            label: What the data calls right.
            loss: Mean loss of the batch; ``None`` where none was computed.
            num_samples: Samples in the batch, >= 1.
        """
        if loss is not None:
            self._loss.add(loss * num_samples, num_samples)
        for metric in self._metrics:
            metric.update(pred, label)

    @property
    def loss(self) -> float:
        """Mean loss over the samples so far; nan where none was computed."""
        return self._loss.compute()

    def values(self) -> dict[str, float]:
        """Return each metric's value by name, the loss first where it was asked for."""
        found = {"loss": self.loss} if self.wants_loss else {}
        return found | {metric.name: metric.compute() for metric in self._metrics}


def _flatten(metric: MetricLike) -> list[Any]:
    if isinstance(metric, list | tuple):
        return [single for entry in metric for single in _flatten(entry)]
    members = getattr(metric, "values", None)
    if isinstance(metric, UpdateComputeReset) and callable(members):
        # torchmetrics.MetricCollection, whose compute() has no single number.
        return list(members())
    return [metric]
