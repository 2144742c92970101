"""Brings the buffers of replicas together, such as BatchNorm's running statistics.

Gradients are merged at every step, buffers are not: each replica updates its own from its own
share of the batch. :meth:`bireme.Trainer.sync_buffers` calls this before an evaluation or a
checkpoint.
"""

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ("average_buffers",)


@torch.no_grad()
def average_buffers(modules: Sequence[nn.Module], weights: Sequence[float]) -> None:
    """Give every replica the same buffers.

    Floating and complex buffers become the weighted mean (summed in float32 at least); integer
    and boolean ones the largest value, as a count of batches seen should.

    Args:
        modules: Replicas with buffers of the same names, shapes and element types.
        weights: One weight >= 0 for each replica, summing to 1. A replica of weight 0 only
            receives, whatever its buffers hold.

    Example:
        >>> norms = [nn.BatchNorm1d(1), nn.BatchNorm1d(1)]
        >>> _ = norms[0].running_mean.fill_(1.0)
        >>> average_buffers(norms, [0.5, 0.5])
        >>> norms[1].running_mean
        tensor([0.5000])
    """
    if len(modules) == 1:
        return
    columns = zip(*(module.buffers() for module in modules), strict=True)
    for buffers in columns:
        live = [(buffer, weight) for buffer, weight in zip(buffers, weights, strict=True) if weight]
        merged = _merged(live)
        for buffer in buffers:
            buffer.copy_(merged)


def _merged(live: Sequence[tuple[torch.Tensor, float]]) -> torch.Tensor:
    first, weight = live[0]
    if not (first.is_floating_point() or first.is_complex()):
        largest = first.clone()
        for buffer, _ in live[1:]:
            largest = torch.maximum(largest, buffer.to(first.device))
        return largest
    wide = torch.promote_types(first.dtype, torch.float32)
    total = first.to(wide) * weight
    for buffer, weight in live[1:]:
        total.add_(buffer.to(device=first.device, dtype=wide), alpha=weight)
    return total
