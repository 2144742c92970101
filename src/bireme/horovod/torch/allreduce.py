"""Sums, means and extremes over processes: ``allreduce`` in all its spellings."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bireme.errors import ConfigError
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.process_sets import ProcessSet, global_process_set
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.compression import Compression, Compressor
from bireme.horovod.torch.gather import allgather_async
from bireme.horovod.torch.handles import as_op, choose_op, synchronize
from bireme.horovod.torch.submitting import start_all, start_in_place, start_one
from bireme.horovod.torch.untraced import untraced

__all__ = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
)


@untraced
def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to reduce a tensor over processes, into a new one.

    Args:
        tensor: Of one shape and dtype on every process.
        average: Older form of ``op``: True for Average, False for Sum.
        name: Ties together the calls of all processes, which may make them in any order; None:
            calls are counted, and all processes make them in the same order.
        op: Average (when None), Sum, Adasum, Min, Max or Product.
        prescale_factor: What the tensor is multiplied by first.
        postscale_factor: What the result is multiplied by.
        process_set: Who takes part.

    Returns:
        A number for `poll` and `synchronize`.

    Raises:
        ConfigError: A ValueError: an argument is faulty, or the name is under way already.
        HorovodInternalError: There is no job, or it has lost a process.
    """
    scales = (prescale_factor, postscale_factor)
    if op is None or average is not None:
        op = choose_op(op, average)
    return start_one(tensor, name, op, scales, process_set)


@untraced
def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Return a tensor reduced over processes; gradients flow through it.

    Arguments as `allreduce_async`, and ``compression``: what to send the tensor as.

    Raises:
        ConfigError: A ValueError: an argument is faulty.
        HorovodInternalError: The processes' tensors do not fit, or a process is lost.

    Example:
        >>> import bireme.horovod.torch as hvd
        >>> hvd.init()
        >>> hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Sum)
        tensor([1., 2.])
        >>> hvd.shutdown()
    """
    op = choose_op(op, average)
    small, ctx = compression.compress(tensor)
    scales = (prescale_factor, postscale_factor)
    reduced = HorovodAllreduce.apply(small, None, name, op, *scales, process_set)
    return compression.decompress(reduced, ctx)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to reduce a tensor over processes in place; arguments as `allreduce_async`."""
    # A backward pass has hundreds of these, so that the short way comes before everything else.
    # The compiler knows its own function by this full name only: an imported one it would call.
    is_traced = torch.compiler.is_dynamo_compiling()
    if type(tensor) is Tensor and not tensor.requires_grad and not is_traced:
        arguments = (average, op, prescale_factor, postscale_factor)
        number = CURRENT.submit_again((name, process_set.process_set_id, arguments), tensor)
        if number is not None:
            return number
    return start_in_place(tensor, average, name, op, prescale_factor, postscale_factor, process_set)


@untraced
def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduce a tensor over processes in place and return it; arguments as `allreduce_async`."""
    result: Tensor = synchronize(
        allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    )
    return result


@untraced
def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to reduce several tensors, which run together; otherwise as `allreduce_async`."""
    scales = (prescale_factor, postscale_factor)
    return start_all(tensors, name, choose_op(op, average), scales, process_set, is_group=True)


@untraced
def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Return several tensors reduced together; gradients flow through. Otherwise as `allreduce`."""
    op = choose_op(op, average)
    small = [compression.compress(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    sent = (tensor for tensor, _ in small)
    reduced = HorovodGroupedAllreduce.apply(None, name, op, *scales, process_set, *sent)
    pairs = zip(reduced, small, strict=True)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in pairs]


@untraced
def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to reduce several tensors in place, together; otherwise as `allreduce_async`."""
    op = choose_op(op, average)
    scales = (prescale_factor, postscale_factor)
    return start_all(tensors, name, op, scales, process_set, in_place=True, is_group=True)


@untraced
def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[Tensor, ...]:
    """Reduce several tensors in place, together, and return them; as `allreduce_async`."""
    scales = (prescale_factor, postscale_factor)
    result: tuple[Tensor, ...] = synchronize(
        grouped_allreduce_async_(tensors, average, name, op, *scales, process_set)
    )
    return result


@untraced
def sparse_allreduce_async(
    tensor: Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Start to add sparse tensors over processes, by gathering what is in them.

    Args:
        tensor: Sparse COO, of one shape on every process, with any number of entries.
        name: Ties together the calls of all processes.
        op: Average or Sum.
        process_set: Who takes part.

    Returns:
        A function without arguments that waits and returns the sum. Entries of one index from
        several processes stay apart until ``coalesce``.

    Raises:
        ConfigError: A ValueError: an argument is faulty, or the name is under way already.
    """
    if op not in (HorovodBasics.Average, HorovodBasics.Sum):
        raise ConfigError(f"sparse tensors are reduced by Average or Sum, got {as_op(op).name}")
    indices = tensor._indices().transpose(0, 1).contiguous()
    rows = allgather_async(indices, f"{name}.indices", process_set)
    entries = allgather_async(tensor._values().contiguous(), f"{name}.values", process_set)

    def result() -> Tensor:
        values, where = synchronize(entries), synchronize(rows)
        if op == HorovodBasics.Average:
            values = values / process_set.size()
        return torch.sparse_coo_tensor(
            where.transpose(0, 1), values, tensor.size(), check_invariants=False
        )

    return result


class HorovodAllreduce(torch.autograd.Function):
    """`allreduce` as autograd sees it: the gradient is reduced in the same way."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> Tensor:
        """Reduce the tensor."""
        ctx.how = (choose_op(op, average), prescale_factor, postscale_factor, process_set)
        result: Tensor = synchronize(allreduce_async(tensor, None, name, *ctx.how))
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        """Reduce the gradient."""
        reduced = HorovodAllreduce.apply(grad_output, None, None, *ctx.how)
        return reduced, None, None, None, None, None, None


class HorovodGroupedAllreduce(torch.autograd.Function):
    """`grouped_allreduce` as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Reduce the tensors."""
        ctx.how = (choose_op(op, average), prescale_factor, postscale_factor, process_set)
        return tuple(synchronize(grouped_allreduce_async(tensors, None, name, *ctx.how)))

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> Any:
        """Reduce the gradients."""
        reduced = HorovodGroupedAllreduce.apply(None, None, *ctx.how, *grad_output)
        return None, None, None, None, None, None, *reduced
