"""One to all, and each to each: ``broadcast`` and ``alltoall``."""

from typing import Any

import torch
from torch import Tensor

from bireme.collective import Collectives, Handle
from bireme.errors import ConfigError
from bireme.horovod.common.process_sets import ProcessSet, global_process_set
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.allreduce import allreduce
from bireme.horovod.torch.handles import dense, put_back, submit, synchronize
from bireme.horovod.torch.untraced import untraced

__all__ = (
    "HorovodAlltoall",
    "HorovodBroadcast",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
)


@untraced
def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to give every process the root's tensor, in a new one.

    Args:
        tensor: Of one shape and dtype on every process.
        root_rank: Rank in the job, also within a process set.
        name: Ties together the calls of all processes; None: calls are counted.
        process_set: Who takes part.

    Returns:
        A number for `poll` and `synchronize`.

    Raises:
        ConfigError: A ValueError: an argument is faulty, or the name is under way already.
        HorovodInternalError: There is no job, or it has lost a process.
    """
    return _send(tensor, root_rank, name, process_set, in_place=False)


@untraced
def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Return the root's tensor; gradients flow to the root. Arguments as `broadcast_async`."""
    result: Tensor = HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    return result


@untraced
def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to give every process the root's tensor, in place. As `broadcast_async`."""
    return _send(tensor, root_rank, name, process_set, in_place=True)


@untraced
def broadcast_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Give every process the root's tensor, in place, and return it. As `broadcast_async`."""
    result: Tensor = synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return result


@untraced
def alltoall_async(
    tensor: Tensor,
    splits: Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start to send the i-th part of a tensor's rows to the i-th process of the set.

    Args:
        tensor: At least one dimension; the first may differ between processes.
        splits: Rows for each process, int32; None: dealt evenly.
        name: Ties together the calls of all processes; None: calls are counted.
        process_set: Who takes part.

    Returns:
        A number for `poll` and `synchronize`, which returns what arrived and how many rows came
        from each process.

    Raises:
        ConfigError: A ValueError: the splits do not fit, or the name is under way already.
    """
    (sent,) = dense([tensor])

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        return engine.alltoall(sent, splits, name=whole, process_set=set_id)

    return submit("alltoall", name, process_set, start, tuple, sent)


@untraced
def alltoall(
    tensor: Tensor,
    splits: Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return what the other processes sent; gradients flow back to them.

    Arguments as `alltoall_async`. With ``splits``, also returns how many rows came from each.
    """
    result: Tensor | tuple[Tensor, Tensor]
    result = HorovodAlltoall.apply(tensor, splits, name, process_set)
    return result


class HorovodBroadcast(torch.autograd.Function):
    """`broadcast` as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Tensor:
        """Broadcast."""
        ctx.root_rank, ctx.process_set = root_rank, process_set
        result: Tensor = synchronize(broadcast_async(tensor, root_rank, name, process_set))
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        """Return the averaged gradient on the root, zeros elsewhere."""
        grad = allreduce(grad_output, process_set=ctx.process_set)
        if ctx.root_rank != CURRENT.topology.rank:
            grad = torch.zeros_like(grad)
        return grad, None, None, None


class HorovodAlltoall(torch.autograd.Function):
    """`alltoall` as autograd sees it."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: Tensor,
        splits: Tensor | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> Any:
        """Exchange."""
        output, received = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.received, ctx.process_set, ctx.num_rows = received, process_set, tensor.shape[0]
        if splits is None:
            return output
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, *_: object) -> Any:
        """Send each part of the gradient back to where its rows came from."""
        grad = alltoall(grad_output, ctx.received, process_set=ctx.process_set)[0]
        unsent = ctx.num_rows - grad.shape[0]
        if unsent:
            grad = torch.cat([grad, grad.new_zeros(unsent, *grad.shape[1:])])
        return grad, None, None, None


def _send(
    tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet, *, in_place: bool
) -> int:
    (sent,) = dense([tensor])
    if isinstance(root_rank, bool) or not isinstance(root_rank, int):
        raise ConfigError(f"root_rank is a rank of the job, got {root_rank!r}")

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        out = sent if in_place else None
        return engine.broadcast(sent, root_rank, name=whole, out=out, process_set=set_id)

    def finish(result: Tensor) -> Tensor:
        return put_back([tensor], [result])[0] if in_place else result

    return submit("broadcast", name, process_set, start, finish, sent)
