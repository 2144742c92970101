"""Sums, means and extremes over processes: ``allreduce`` in all its spellings."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bireme.collective import Collectives, Handle
from bireme.errors import CollectiveError, ConfigError
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.exceptions import NotInitialized
from bireme.horovod.common.process_sets import ProcessSet, global_process_set, id_of
from bireme.horovod.session import CURRENT, Repeat
from bireme.horovod.torch.compression import Compression, Compressor
from bireme.horovod.torch.gather import allgather_async
from bireme.horovod.torch.handles import (
    as_op,
    choose_op,
    dense,
    group_names,
    is_plain,
    put_back,
    refusal,
    submit,
    synchronize,
)
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
    return _start_one(tensor, name, op, scales, process_set)


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
    if type(tensor) is Tensor and not tensor.requires_grad and not torch.compiler.is_compiling():
        arguments = (average, op, prescale_factor, postscale_factor)
        number = CURRENT.submit_again(name, process_set.process_set_id, arguments, tensor)
        if number is not None:
            return number
    return _start_in_place(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    )


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
    return _start(tensors, name, choose_op(op, average), scales, process_set, is_group=True)


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
    return _start(tensors, name, op, scales, process_set, in_place=True, is_group=True)


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


@untraced
def _start_in_place(
    tensor: Tensor,
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> int:
    scales = (prescale_factor, postscale_factor)
    chosen = choose_op(op, average) if op is None or average is not None else op
    number = _start_one(tensor, name, chosen, scales, process_set, in_place=True)
    pending = CURRENT.pending.get(number)
    # Another thread may have shut everything down since.
    if name is not None and pending is not None:
        arguments = (average, op, *scales)
        key = (id_of(process_set), pending[0].name)
        CURRENT.remember(name, Repeat(arguments, key, (as_op(chosen), scales)))
    return number


def _start_one(
    tensor: Tensor,
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool = False,
) -> int:
    """Submit an allreduce of one tensor: a step has hundreds of these, so with few objects."""
    if not is_plain(tensor):
        return _start([tensor], name, op, scales, process_set, in_place=in_place)
    try:
        engine, set_id = CURRENT.engine, id_of(process_set)
        reduce_op, sent = as_op(op), [tensor]
        whole = CURRENT.name_of("allreduce", name, set_id)
        try:
            handle = engine.allreduce(
                sent,
                names=[whole],
                op=reduce_op,
                prescale=scales[0],
                postscale=scales[1],
                outs=sent if in_place else None,
                process_set=set_id,
            )
        except ConfigError:
            CURRENT.uncount("allreduce", name, set_id)
            raise
    except (NotInitialized, CollectiveError) as error:
        raise refusal(error) from error
    return CURRENT.number_of((handle, _first, sent))


def _first(results: list[Tensor]) -> Tensor:
    return results[0]


def _start(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool = False,
    is_group: bool = False,
) -> int:
    """Submit an allreduce of one tensor or a group."""
    tensors = list(tensors)
    sent = dense(tensors)
    reduce_op = as_op(op)

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        return engine.allreduce(
            sent,
            names=group_names(whole, len(sent)) if is_group else [whole],
            op=reduce_op,
            prescale=scales[0],
            postscale=scales[1],
            outs=sent if in_place else None,
            process_set=set_id,
        )

    finish = _Finish(tensors if in_place else None, is_group)
    kind = "grouped_allreduce" if is_group else "allreduce"
    return submit(kind, name, process_set, start, finish, sent)


class _Finish:
    """Makes what `synchronize` returns. Not a closure: those are many objects for each call."""

    __slots__ = ("_is_group", "_tensors")

    def __init__(self, tensors: Sequence[Tensor] | None, is_group: bool) -> None:
        self._tensors = tensors
        self._is_group = is_group

    def __call__(self, results: list[Tensor]) -> Any:
        done = results if self._tensors is None else put_back(self._tensors, results)
        return tuple(done) if self._is_group else done[0]
