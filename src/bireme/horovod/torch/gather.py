"""Concatenations over processes, and their inverse: ``allgather`` and ``reducescatter``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bireme.collective import Collectives, Handle
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.exceptions import HorovodInternalError
from bireme.horovod.common.process_sets import ProcessSet, global_process_set
from bireme.horovod.torch.compression import Compression, Compressor
from bireme.horovod.torch.handles import as_op, dense, group_names, submit, synchronize
from bireme.horovod.torch.untraced import untraced

__all__ = (
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodGroupedReducescatter",
    "HorovodReducescatter",
    "allgather",
    "allgather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
)

_AVERAGE = HorovodBasics.Average


@untraced
def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start to concatenate the processes' tensors along dimension 0.

    Args:
        tensor: At least one dimension; the first may differ between processes.
        name: Ties together the calls of all processes; None: calls are counted.
        process_set: Who takes part.

    Returns:
        A number for `poll` and `synchronize`.

    Raises:
        ConfigError: A ValueError: an argument is faulty, or the name is under way already.
        HorovodInternalError: There is no job, or it has lost a process.
    """
    return _gather([tensor], name, process_set, is_group=False)


@untraced
def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the processes' tensors, concatenated along dimension 0; gradients flow through.

    Arguments as `allgather_async`. The gradient is that of the mean over processes.
    """
    result: Tensor = HorovodAllgather.apply(tensor, name, process_set)
    return result


@untraced
def grouped_allgather_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to concatenate several tensors, which run together; as `allgather_async`."""
    return _gather(tensors, name, process_set, is_group=True)


@untraced
def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[Tensor, ...]:
    """Return several concatenated tensors; gradients flow through. As `allgather`."""
    result: tuple[Tensor, ...] = HorovodGroupedAllgather.apply(name, process_set, *tensors)
    return result


@untraced
def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = _AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start to reduce a tensor over processes, of which each gets its rows.

    Args:
        tensor: At least one dimension, of one shape on every process. The first processes get
            one row more where the rows cannot be dealt evenly.
        name: Ties together the calls of all processes; None: calls are counted.
        op: Average or Sum.
        process_set: Who takes part.
        prescale_factor: What the tensor is multiplied by first.
        postscale_factor: What the result is multiplied by.

    Returns:
        A number for `poll` and `synchronize`.
    """
    scales = (prescale_factor, postscale_factor)
    return _scatter([tensor], name, op, process_set, scales, is_group=False)


@untraced
def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = _AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Return this process's rows of a tensor reduced over processes; gradients flow through.

    Arguments as `reducescatter_async`, and ``compression``: what to send the tensor as.
    """
    small, ctx = compression.compress(tensor)
    scales = (prescale_factor, postscale_factor)
    reduced = HorovodReducescatter.apply(small, name, op, process_set, *scales)
    return compression.decompress(reduced, ctx)


@untraced
def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = _AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start to reduce and scatter several tensors, which run together."""
    scales = (prescale_factor, postscale_factor)
    return _scatter(tensors, name, op, process_set, scales, is_group=True)


@untraced
def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = _AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Return this process's rows of several tensors; gradients flow. As `reducescatter`."""
    small = [compression.compress(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    sent = (tensor for tensor, _ in small)
    reduced = HorovodGroupedReducescatter.apply(name, op, process_set, *scales, *sent)
    pairs = zip(reduced, small, strict=True)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in pairs]


class HorovodAllgather(torch.autograd.Function):
    """`allgather` as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: str | None, process_set: ProcessSet) -> Tensor:
        """Gather."""
        ctx.rows, ctx.process_set = _rows([tensor]), process_set
        result: Tensor = synchronize(allgather_async(tensor, name, process_set))
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        """Return the rows of the averaged gradient that are this process's."""
        (mine,) = _own_rows([grad_output], ctx.rows, ctx.process_set)
        return mine, None, None


class HorovodGroupedAllgather(torch.autograd.Function):
    """`grouped_allgather` as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Gather."""
        ctx.rows, ctx.process_set = _rows(tensors), process_set
        return tuple(synchronize(grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> Any:
        """Return the rows of the averaged gradients that are this process's."""
        return None, None, *_own_rows(grad_output, ctx.rows, ctx.process_set)


class HorovodReducescatter(torch.autograd.Function):
    """`reducescatter` as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> Tensor:
        """Reduce and scatter."""
        scales = (prescale_factor, postscale_factor)
        ctx.factor, ctx.process_set = _backward_factor(op, process_set, scales), process_set
        result: Tensor = synchronize(reducescatter_async(tensor, name, op, process_set, *scales))
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        """Return everybody's gradients, concatenated."""
        grad = allgather(grad_output * ctx.factor, process_set=ctx.process_set)
        return grad, None, None, None, None, None


class HorovodGroupedReducescatter(torch.autograd.Function):
    """`grouped_reducescatter` as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Reduce and scatter."""
        scales = (prescale_factor, postscale_factor)
        ctx.factor, ctx.process_set = _backward_factor(op, process_set, scales), process_set
        return tuple(
            synchronize(grouped_reducescatter_async(tensors, name, op, process_set, *scales))
        )

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> Any:
        """Return everybody's gradients, concatenated."""
        grads = [grad * ctx.factor for grad in grad_output]
        gathered = grouped_allgather(grads, process_set=ctx.process_set)
        return None, None, None, None, None, *gathered


def _gather(
    tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet, *, is_group: bool
) -> int:
    sent = dense(tensors)

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        names = group_names(whole, len(sent)) if is_group else [whole]
        return engine.allgather(sent, names=names, process_set=set_id)

    kind = "grouped_allgather" if is_group else "allgather"
    return submit(kind, name, process_set, start, tuple if is_group else _first, sent)


def _scatter(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    process_set: ProcessSet,
    scales: tuple[float, float],
    *,
    is_group: bool,
) -> int:
    sent, reduce_op = dense(tensors), as_op(op)
    if op not in (HorovodBasics.Average, HorovodBasics.Sum):
        raise HorovodInternalError(f"reducescatter takes Average and Sum, got {reduce_op.name}")

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        return engine.reducescatter(
            sent,
            names=group_names(whole, len(sent)) if is_group else [whole],
            op=reduce_op,
            prescale=scales[0],
            postscale=scales[1],
            process_set=set_id,
        )

    kind = "grouped_reducescatter" if is_group else "reducescatter"
    return submit(kind, name, process_set, start, tuple if is_group else _first, sent)


def _rows(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.shape[0] if tensor.ndim else 0 for tensor in tensors]


def _own_rows(grads: Sequence[Tensor], rows: list[int], process_set: ProcessSet) -> list[Tensor]:
    """Return this process's rows of the mean of all processes' gradients."""
    sizes = allgather(torch.tensor([rows]), process_set=process_set)
    starts = sizes[: process_set.rank()].sum(0).tolist()
    sent = dense(grads)

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        return engine.allreduce(sent, names=group_names(whole, len(sent)), process_set=set_id)

    means = synchronize(submit("allgather_grad", None, process_set, start, list, sent))
    return [
        mean.narrow(0, low, count) for mean, low, count in zip(means, starts, rows, strict=True)
    ]


def _backward_factor(op: int, process_set: ProcessSet, scales: tuple[float, float]) -> float:
    """Return what a gradient is multiplied by: for sums as often as there are processes."""
    size = process_set.size() or 1
    return scales[0] * scales[1] * (size if op == HorovodBasics.Sum else 1)


def _first(results: Sequence[Tensor]) -> Tensor:
    return results[0]
