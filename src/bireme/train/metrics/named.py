"""The metrics that go by a name."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from bireme.errors import ConfigError
from bireme.train.metrics.base import MeanMetric, Metric

__all__ = (
    "NAMED",
    "Accuracy",
    "CrossEntropy",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "TopKAccuracy",
)


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


NAMED: Mapping[str, Callable[..., Metric]] = {
    "acc": Accuracy,
    "accuracy": Accuracy,
    "top_k_accuracy": TopKAccuracy,
    "mse": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "ce": CrossEntropy,
    "cross-entropy": CrossEntropy,
}
"""What each name makes, given the parameters that go with it."""


def _about(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}"


def _shaped_like(pred: Any, label: Any) -> Any:
    """Return ``label`` in the shape of ``pred``: (n,) and (n, 1) would broadcast to (n, n)."""
    if pred.shape != label.shape and pred.squeeze().shape != label.squeeze().shape:
        raise ConfigError(
            f"predictions and labels differ in shape: {_about(pred)}, {_about(label)}"
        )
    return label.reshape(pred.shape)
