"""Gloo groups below ours: between machines, and for messages between two ranks.

Gloo does the network's work here, as the architecture has it. What it cannot add (16-bit integers,
8-bit floats...) is handled in types that it can. Called by `Hierarchy` and `BiremeProcessGroup`.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions

from bireme.collective.bank.elements import Reduction
from bireme.errors import UnsupportedError

__all__ = ("Network", "check_network", "gloo_group")

_LOOK_AROUND = timedelta(seconds=0.2)

_OPS = {
    Reduction.SUM: dist.ReduceOp.SUM,
    Reduction.PRODUCT: dist.ReduceOp.PRODUCT,
    Reduction.MIN: dist.ReduceOp.MIN,
    Reduction.MAX: dist.ReduceOp.MAX,
    Reduction.BAND: dist.ReduceOp.BAND,
    Reduction.BOR: dist.ReduceOp.BOR,
    Reduction.BXOR: dist.ReduceOp.BXOR,
}
_ADDED_BY_GLOO = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
        torch.int32, torch.int64,
    }
)  # fmt: skip
_WIDER = {
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.bool: torch.uint8,
}


def gloo_group(store: Any, rank: int, size: int, timeout_s: float, *, lazy: bool = False) -> Any:
    """Return a Gloo group.

    Args:
        store: Keys of its own for this group.
        rank: This rank in it.
        size: How many ranks it has.
        timeout_s: Limit of making it and of each operation.
        lazy: Connect two ranks when they first talk, so that not all need to make the group. Where
            this PyTorch's Gloo cannot, all ranks must come.
    """
    timeout = timedelta(seconds=max(timeout_s, 0.001))
    group = dist.ProcessGroupGloo
    if lazy:
        try:
            options = group._Options()  # type: ignore[attr-defined]
            options._devices = [group.create_default_device(lazy_init=True)]
            options._timeout, options._threads = timeout, 2
        except (AttributeError, TypeError):
            return group(store, rank, size, timeout)
        return group(store, rank, size, options)
    return group(store, rank, size, timeout)


class Network:
    """Collectives of contiguous tensors over one Gloo group.

    Args:
        group: The group.
        look_around: Called while an operation takes long; raises if it will never end.
    """

    def __init__(self, group: Any, look_around: Callable[[], None] = lambda: None) -> None:
        self.group = group
        self._look_around = look_around
        self._under_way: Any = None

    def all_reduce(self, tensor: Tensor, op: Reduction, timeout_s: float) -> Callable[[], None]:
        """Begin to reduce in place; the result is called to await the end.

        Raises:
            UnsupportedError: Neither Gloo nor we can.
        """
        check_network(tensor.dtype, op)
        sent = tensor
        if tensor.dtype.is_complex:
            sent = torch.view_as_real(tensor)
        elif tensor.dtype is torch.uint64:
            sent = tensor.view(torch.int64)
        elif tensor.dtype not in _ADDED_BY_GLOO:
            sent = tensor.to(_WIDER[tensor.dtype])
        opts = dist.AllreduceOptions()
        # Of truth values the sum is "or", as inside a machine.
        is_or = tensor.dtype is torch.bool and op is Reduction.SUM
        opts.reduceOp = dist.ReduceOp(_OPS[Reduction.MAX if is_or else op])
        opts.timeout = _limit(timeout_s)
        work = self._under_way = self.group.allreduce([sent], opts)

        def finish() -> None:
            self._await(work)
            if sent.dtype is not tensor.dtype and tensor.dtype in _WIDER:
                tensor.copy_(sent)

        return finish

    def broadcast(self, tensor: Tensor, root: int, timeout_s: float) -> None:
        """Copy the root's tensor."""
        opts = dist.BroadcastOptions()
        opts.rootRank, opts.rootTensor, opts.timeout = root, 0, _limit(timeout_s)
        self._await(self.group.broadcast([tensor], opts))

    def all_gather(self, source: Tensor, outputs: Sequence[Tensor], timeout_s: float) -> None:
        """Copy every rank's tensor to all; equal sizes."""
        opts = AllgatherOptions()
        opts.timeout = _limit(timeout_s)
        self._await(self.group.allgather([list(outputs)], [source], opts))

    def gather(
        self, source: Tensor, outputs: Sequence[Tensor] | None, root: int, timeout_s: float
    ) -> None:
        """Copy every rank's tensor to the root; equal sizes."""
        opts = dist.GatherOptions()
        opts.rootRank, opts.timeout = root, _limit(timeout_s)
        into = [] if outputs is None else [list(outputs)]
        self._await(self.group.gather(into, [source], opts))

    def scatter(
        self, inputs: Sequence[Tensor] | None, output: Tensor, root: int, timeout_s: float
    ) -> None:
        """Copy one of the root's tensors to each rank; equal sizes."""
        opts = dist.ScatterOptions()
        opts.rootRank, opts.timeout = root, _limit(timeout_s)
        given = [] if inputs is None else [list(inputs)]
        self._await(self.group.scatter([output], given, opts))

    def all_to_all(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], timeout_s: float
    ) -> None:
        """Copy one tensor from each rank to each."""
        opts = dist.AllToAllOptions()
        opts.timeout = _limit(timeout_s)
        sent, into = ([each.view(-1) for each in side] for side in (inputs, outputs))
        sizes = [[each.numel() for each in side] for side in (into, sent)]
        received = torch.empty(sum(sizes[0]), dtype=inputs[0].dtype)
        self._await(self.group.alltoall_base(received, torch.cat(sent), *sizes, opts))
        for target, part in zip(into, torch.split(received, sizes[0]), strict=True):
            target.copy_(part)

    def _await(self, work: Any) -> None:
        """Wait for the end of an operation, or of the group, whichever is first."""
        self._under_way = work
        while not work.is_completed():
            # Its error, if it has one, is raised below: here one cannot be told from a wait's own
            # end, after which the operation may be done before anybody has looked.
            with suppress(RuntimeError):
                work.wait(_LOOK_AROUND)
            if not work.is_completed():
                self._look_around()
        work.wait()
        self._under_way = None

    def close(self) -> None:
        """Close the connections.

        Gloo cannot end an operation before its time, and waits for it when a group is deleted: then
        the group is left to the end of the process.
        """
        group, self.group = self.group, None
        work, self._under_way = self._under_way, None
        if group is not None and work is not None and not work.is_completed():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def check_network(dtype: torch.dtype, op: Reduction) -> None:
    """Raise `UnsupportedError` if this cannot be computed between machines."""
    is_sum = op is Reduction.SUM
    if (dtype.is_complex or dtype is torch.uint64) and not is_sum:
        raise UnsupportedError(f"{op} of {dtype} is not computed between machines, only sums are")


def _limit(timeout_s: float) -> timedelta:
    return timedelta(seconds=max(timeout_s, 0.001))
