"""Metrics: how good the predictions are, added up over batches.

Called by :meth:`bireme.Module.fit` and ``score``, which take a name, an object or function, or a
list of these. Each metric sees whole batches, however they were split over contexts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, Union, runtime_checkable

import torch
from torch.nn import functional

from bireme.errors import ConfigError
from bireme.train import nested, split

__all__ = (
    "Accuracy",
    "CrossEntropy",
    "CustomMetric",
    "MeanAbsoluteError",
    "MeanMetric",
    "MeanSquaredError",
    "Metric",
    "MetricLike",
    "MetricSet",
    "TopKAccuracy",
    "UpdateComputeReset",
    "create",
)


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


class Accuracy(MeanMetric):
    """The part of the predictions whose class is right: ``"acc"`` or ``"accuracy"``.

    Predictions are scores of shape (n, classes, ...), or integer classes of the label's shape.

    Raises:
        ConfigError: On ``update``: shapes do not fit, or one column of scores, which has no
            greatest one.

    Example:
        >>> accuracy = Accuracy()
        >>> accuracy.update(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        >>> accuracy.compute()
        0.5
    """

    name = "accuracy"

    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor, int]:
        """Count the right ones."""
        if pred.ndim == label.ndim + 1 and pred.shape[1] > 1:
            pred = pred.argmax(1)
        if pred.shape != label.shape or pred.is_floating_point():
            raise ConfigError(
                f"accuracy needs scores of shape (n, classes > 1, ...) or integer classes of the "
                f"label's shape; got {_about(pred)} for {_about(label)}"
            )
        return (pred == label).sum(), label.numel()


class TopKAccuracy(MeanMetric):
    """The part of the labels among the ``k`` greatest scores: ``"top_k_accuracy"``.

    Args:
        k: How many scores may hold the right class, >= 1.
    """

    def __init__(self, k: int = 5) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ConfigError(f"k must be an integer >= 1, got {k!r}")
        self._k = k
        self.name = f"top_{k}_accuracy"

    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor, int]:
        """Count the labels found."""
        if pred.ndim != label.ndim + 1 or pred.shape[1] < self._k:
            raise ConfigError(
                f"{self.name} needs scores of shape (n, {self._k} classes or more, ...), got "
                f"{_about(pred)} for {_about(label)}"
            )
        best = pred.topk(self._k, dim=1).indices
        return (best == label.unsqueeze(1)).any(1).sum(), label.numel()


class MeanSquaredError(MeanMetric):
    """The mean of ``(pred - label) ** 2`` over all elements: ``"mse"``."""

    name = "mse"

    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor, int]:
        """Add the squares."""
        return (pred - _shaped_like(pred, label)).square().sum(), label.numel()


class MeanAbsoluteError(MeanMetric):
    """The mean of ``abs(pred - label)`` over all elements: ``"mae"``."""

    name = "mae"

    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor, int]:
        """Add the distances."""
        return (pred - _shaped_like(pred, label)).abs().sum(), label.numel()


class CrossEntropy(MeanMetric):
    """The mean cross entropy of integer labels: ``"ce"`` or ``"cross-entropy"``.

    Predictions are logits of shape (n, classes, ...), as for
    ``torch.nn.functional.cross_entropy``; not probabilities.
    """

    name = "cross-entropy"

    def measure(self, pred: Any, label: Any) -> tuple[torch.Tensor, int]:
        """Add the entropies."""
        if pred.ndim != label.ndim + 1 or label.is_floating_point():
            raise ConfigError(
                f"cross-entropy needs logits of shape (n, classes, ...) and integer labels, got "
                f"{_about(pred)} for {_about(label)}"
            )
        # A sum in a half type would lose everything after some hundred samples.
        wide = torch.promote_types(pred.dtype, torch.float32)
        return functional.cross_entropy(pred.to(wide), label, reduction="sum"), label.numel()


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


class _Foreign(Metric):
    """A metric of another library behind our interface."""

    def __init__(self, metric: UpdateComputeReset) -> None:
        self._metric = metric
        self.name = type(metric).__name__.lower()

    def update(self, pred: Any, label: Any) -> None:
        device = getattr(self._metric, "device", torch.device("cpu"))
        self._metric.update(split.move(pred, device), split.move(label, device))

    def compute(self) -> float:
        value = self._metric.compute()
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"metric {self.name} computes {value!r:.80}, not one number; average it"
            ) from error

    def reset(self) -> None:
        self._metric.reset()


_NAMED: dict[str, Callable[..., Metric]] = {
    "acc": Accuracy,
    "accuracy": Accuracy,
    "top_k_accuracy": TopKAccuracy,
    "mse": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "ce": CrossEntropy,
    "cross-entropy": CrossEntropy,
}


def create(metric: MetricLike, **parameters: Any) -> Metric:
    """Return the metric that a name, object or function stands for.

    Args:
        metric: See :data:`MetricLike`; not a list.
        parameters: For a name that takes some: ``create("top_k_accuracy", k=3)``.

    Raises:
        ConfigError: The name or a parameter is unknown, or ``metric`` is no metric.

    Example:
        >>> create("top_k_accuracy", k=3).name
        'top_3_accuracy'
    """
    if isinstance(metric, str):
        if metric not in _NAMED:
            names = ", ".join([*_NAMED, "loss"])
            raise ConfigError(f"unknown metric {metric!r}; the names are: {names}")
        try:
            return _NAMED[metric](**parameters)
        except TypeError as error:
            raise ConfigError(f"metric {metric!r} does not take {parameters}: {error}") from error
    if parameters:
        raise ConfigError(f"parameters {sorted(parameters)} go with a metric's name only")
    if isinstance(metric, type):
        raise ConfigError(f"{metric.__name__} is a class; pass an object: {metric.__name__}()")
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, UpdateComputeReset):
        return _Foreign(metric)
    if callable(metric):
        return CustomMetric(metric)
    raise ConfigError(f"expected a metric's name, object or function, got {metric!r}")


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


def _about(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}"


def _shaped_like(pred: Any, label: Any) -> Any:
    """Return ``label`` in the shape of ``pred``: (n,) and (n, 1) would broadcast to (n, n)."""
    if pred.shape != label.shape and pred.squeeze().shape != label.squeeze().shape:
        raise ConfigError(
            f"predictions and labels differ in shape: {_about(pred)}, {_about(label)}"
        )
    return label.reshape(pred.shape)
