"""Goes through data in evaluation mode, without gradients: to score it or to predict.

:meth:`bireme.Module.score` and :meth:`bireme.Module.predict` call it.
"""

from typing import Any

import torch

from bireme.train import batches, nested, split
from bireme.train.computing import Computing
from bireme.train.metrics import MetricLike, MetricSet

__all__ = ("predict", "score")


def predict(computing: Computing, data: Any) -> nested.Nested:
    """Return the net's outputs for all of ``data``, joined along axis 0, on the CPU.

    Args:
        computing: The net on its contexts.
        data: An iterable of batches, with labels or without; or one tensor or array of inputs.

    Raises:
        ConfigError: There is no data, or an output has no batch along axis 0.
    """
    cpu = torch.device("cpu")
    with computing.mode(training=False):
        parts = [
            split.move(computing.infer(batches.inputs(batch)), cpu)
            for batch in batches.epoch_batches("data", batches.single_pass(data), 0)
        ]
    return nested.merge(parts, torch.cat)


def score(computing: Computing, data: Any, metric: MetricLike) -> dict[str, float]:
    """Return each metric over all of ``data``, by name.

    Args:
        computing: The net on its contexts, with a loss where ``metric`` asks for it.
        data: An iterable of batches ``(data, label)``.
        metric: See :data:`bireme.train.metrics.MetricLike`.

    Raises:
        ConfigError: A metric is unknown, or a batch has another form or no samples.
    """
    found = MetricSet(metric)
    found.reset()
    if found.wants_loss:
        computing.need_loss()
    device = computing.replicas.first.device
    with computing.mode(training=False):
        for batch in batches.epoch_batches("data", batches.single_pass(data), 0):
            inputs, label = batches.pair(batch)
            num_samples = nested.batch_size_of((inputs, label), name="batch")
            pred, label = computing.infer(inputs), split.move(label, device)
            loss = computing.loss(pred, label) if found.wants_loss else None
            found.update(pred, label, loss, num_samples)
    return found.values()
