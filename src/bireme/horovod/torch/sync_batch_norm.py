"""Batch normalisation over the batches of all processes."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from bireme.errors import ConfigError
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.process_sets import ProcessSet, global_process_set
from bireme.horovod.torch.allreduce import allreduce_async
from bireme.horovod.torch.gather import allgather_async
from bireme.horovod.torch.handles import synchronize
from bireme.horovod.torch.untraced import untraced

__all__ = ("SyncBatchNorm",)

_NAME = "sync_batch_norm"


class SyncBatchNorm(_BatchNorm):
    """Normalises channels by the mean and variance of all processes' batches together.

    Batches may differ in size, and some may be empty. Every process of the set takes part in each
    forward pass of training, and in each backward pass. Works on any device.

    Args:
        num_features: Channels C of an input of shape (N, C, ...).
        eps: Added to the variance.
        momentum: Weight of the newest batch in the running statistics; None: all weigh the same.
        affine: Whether to learn a weight and a bias for each channel.
        track_running_stats: Whether to keep running statistics, for evaluation.
        process_set: Who takes part.

    Example:
        >>> import bireme.horovod.torch as hvd
        >>> hvd.init()
        >>> hvd.SyncBatchNorm(1)(torch.tensor([[1.0], [3.0]])).detach().round()
        tensor([[-1.],
                [ 1.]])
        >>> hvd.shutdown()
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, normalised.

        Raises:
            ConfigError: The input has fewer than two dimensions or other channels.
        """
        self._check_input_dim(input)
        use_batch = self.training or self.running_mean is None
        size = self.process_set.size() or 1
        if not use_batch or size == 1:
            return self._alone(input)
        return self._together(input)

    @untraced
    def _together(self, input: Tensor) -> Tensor:
        """Normalise by what all processes have."""
        result, mean, variance, count = _Normalize.apply(
            input, self.weight, self.bias, self.eps, self.process_set
        )
        if self.training and self.track_running_stats:
            self._track(mean, variance, count)
        output: Tensor = result
        return output

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ConfigError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) != self.num_features:
            raise ConfigError(f"expected {self.num_features} channels, got {input.size(1)}")

    def _alone(self, input: Tensor) -> Tensor:
        """Normalise as torch does, with the same bookkeeping."""
        return super().forward(input)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        weight = self.momentum
        if weight is None:
            weight = 1.0 / float(self.num_batches_tracked)
        total = float(count)
        if total == 0:
            return
        unbiased = variance * (total / max(total - 1.0, 1.0))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), weight)


class _Normalize(torch.autograd.Function):
    """The arithmetic, in float32 at least.

    Source:
        Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances", 1979: means and sums of squares of parts give those of the whole.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        process_set: ProcessSet,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the normalised input, and mean, variance and count of all batches."""
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        mean, variance, count = _statistics(wide, process_set)
        scale = torch.rsqrt(variance + eps)
        shape = (1, -1) + (1,) * (input.dim() - 2)
        normal = (wide - mean.view(shape)) * scale.view(shape)
        ctx.save_for_backward(normal, weight, scale, count)
        ctx.process_set, ctx.dtype, ctx.shape = process_set, input.dtype, shape
        result = normal
        if weight is not None:
            result = result * weight.to(wide.dtype).view(shape)
        if bias is not None:
            result = result + bias.to(wide.dtype).view(shape)
        ctx.mark_non_differentiable(mean, variance, count)
        return result.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, *_: object) -> Any:
        """Return the gradients of input, weight and bias; those of the latter are this batch's."""
        normal, weight, scale, count = ctx.saved_tensors
        grad = grad_output.to(normal.dtype)
        axes = [axis for axis in range(grad.dim()) if axis != 1]
        sums = torch.stack([grad.sum(axes), (grad * normal).sum(axes)])
        grad_bias, grad_weight = sums.unbind()
        handle = allreduce_async(
            sums, name=f"{_NAME}.sums", op=HorovodBasics.Sum, process_set=ctx.process_set
        )
        means = synchronize(handle) / count.clamp(min=1)
        grad_input = grad - means[0].view(ctx.shape) - normal * means[1].view(ctx.shape)
        factor = scale if weight is None else scale * weight.to(scale.dtype)
        grad_input = (grad_input * factor.view(ctx.shape)).to(ctx.dtype)
        if weight is None:
            return grad_input, None, None, None, None
        return grad_input, grad_weight.to(weight.dtype), grad_bias.to(weight.dtype), None, None


def _statistics(wide: Tensor, process_set: ProcessSet) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and variance of each channel over all processes, and how many values it has."""
    axes = [axis for axis in range(wide.dim()) if axis != 1]
    count = wide.numel() // wide.size(1)
    own = wide.new_zeros(3, wide.size(1))
    own[0] = count
    if count:
        own[1] = wide.mean(axes)
        own[2] = wide.var(axes, unbiased=False) * count
    handle = allgather_async(own.unsqueeze(0), f"{_NAME}.statistics", process_set)
    counts, means, squares = synchronize(handle).unbind(1)
    total = counts[:, 0].sum()
    safe = total.clamp(min=1)
    mean = (counts * means).sum(0) / safe
    spread = (squares + counts * (means - mean) ** 2).sum(0)
    return mean, spread / safe, total
