"""What a metric is: a number that is added up over batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, Union, runtime_checkable

import torch

__all__ = ("MeanMetric", "Metric", "MetricLike", "UpdateComputeReset")


@runtime_checkable
class UpdateComputeReset(Protocol):
    """What we ask of a metric of another library, such as torchmetrics."""

    def update(self, pred: Any, label: Any, /) -> Any:
        """Add one batch."""

    def compute(self) -> Any:
        """Return the value over all batches since the last reset."""

    def reset(self) -> Any:
        """Forget every batch."""


MetricLike: TypeAlias = Union[
    str,
    "Metric",
    UpdateComputeReset,
    Callable[[Any, Any], Any],
    Sequence["MetricLike"],
]
"""A name; a :class:`Metric`; an object with ``update``, ``compute`` and ``reset``, as those of
torchmetrics; a function ``fn(pred, label)``, averaged by samples; or a list of these."""


class Metric(ABC):
    """One number, added up over batches. Subclass :class:`MeanMetric` for a plain mean."""

    name: str

    @abstractmethod
    def update(self, pred: Any, label: Any) -> None:
        """Add one batch.

        Args:
            pred: What the net returned; samples along axis 0.
            label: What the data calls right, on the same device.
        """

    @abstractmethod
    def compute(self) -> float:
        """Return the value over all batches since the last reset; nan after none."""

    @abstractmethod
    def reset(self) -> None:
        """Forget every batch."""


class MeanMetric(Metric):
    """A mean over everything that :meth:`measure` finds.

    Sums stay on the batches' device until :meth:`compute`, so a GPU is not made to wait.

    Example:
        >>> class Bias(MeanMetric):
        ...     name = "bias"
        ...     def measure(self, pred, label):
        ...         return (pred - label).sum(), label.numel()
        >>> bias = Bias()
        >>> bias.update(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])); bias.compute()
        0.5
    """

    def __init__(self) -> None:
        self._total: torch.Tensor | float = 0.0
        self._count = 0

    @abstractmethod
    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor | float, int]:
        """Return the sum over one batch, and of how many things it is the sum."""

    def update(self, pred: Any, label: Any) -> None:
        """As :meth:`Metric.update`."""
        self.add(*self.measure(pred, label))

    def add(self, total: torch.Tensor | float, count: int) -> None:
        """Add a sum over ``count`` things."""
        if isinstance(total, torch.Tensor):
            total = total.detach().to(torch.float64)
        self._total = self._total + total
        self._count += count

    def compute(self) -> float:
        """As :meth:`Metric.compute`."""
        return float(self._total) / self._count if self._count else float("nan")

    def reset(self) -> None:
        """As :meth:`Metric.reset`."""
        self._total, self._count = 0.0, 0
