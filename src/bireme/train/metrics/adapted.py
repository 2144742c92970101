"""Metrics made of what others bring: a function, or a metric of another library."""

from collections.abc import Callable
from typing import Any

import torch

from bireme.errors import ConfigError
from bireme.train import nested, split
from bireme.train.metrics.base import MeanMetric, Metric, UpdateComputeReset

__all__ = ("CustomMetric", "ForeignMetric")


class CustomMetric(MeanMetric):
    """The mean of ``function(pred, label)`` over batches, weighed by samples."""

    def __init__(self, function: Callable[[Any, Any], Any], name: str | None = None) -> None:
        super().__init__()
        self._function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor | float, int]:
        """Call the function."""
        num_samples = nested.batch_size_of(label)
        return self._function(pred, label) * num_samples, num_samples


class ForeignMetric(Metric):
    """A metric of another library behind our interface.

    Args:
        metric: Such as those of torchmetrics; its class names it.
    """

    def __init__(self, metric: UpdateComputeReset) -> None:
        self._metric = metric
        self.name = type(metric).__name__.lower()

    def update(self, pred: Any, label: Any) -> None:
        """As :meth:`Metric.update`; batches move to the metric's device."""
        device = getattr(self._metric, "device", torch.device("cpu"))
        self._metric.update(split.move(pred, device), split.move(label, device))

    def compute(self) -> float:
        """As :meth:`Metric.compute`.

        Raises:
            ConfigError: The metric has another value than one number.
        """
        value = self._metric.compute()
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"metric {self.name} computes {value!r:.80}, not one number; average it"
            ) from error

    def reset(self) -> None:
        """As :meth:`Metric.reset`."""
        self._metric.reset()
