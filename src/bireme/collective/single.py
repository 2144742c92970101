"""The engine of a job of one process: every operation is done when its submission returns.

Made by `start`; no threads, no sockets.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from bireme.collective.arithmetic import factors, row_counts, scale_
from bireme.collective.base import GLOBAL_SET
from bireme.collective.checks import check_set_ranks
from bireme.collective.front import Front, Operation
from bireme.collective.handles import Handle
from bireme.collective.timeline import CollectiveTimeline, timeline_path
from bireme.core.negotiation.agreement import ROWS
from bireme.core.negotiation.messages import Kind
from bireme.errors import ConfigError, MismatchError
from bireme.types.topology import ReduceOp, Topology

__all__ = ("SingleProcess",)


class SingleProcess(Front):
    """`Collectives` of one rank.

    Example:
        >>> engine = SingleProcess()
        >>> engine.allreduce([torch.ones(2)], names=["a"], postscale=3.0).wait()
        [tensor([3., 3.])]
        >>> engine.close()
    """

    def __init__(self, topology: Topology | None = None) -> None:
        topology = topology or Topology.alone()
        if topology.size != 1:
            raise ConfigError(f"one process cannot stand for {topology.size} ranks")
        super().__init__(topology, {GLOBAL_SET: (0,)})
        self._set_ids = itertools.count(1)
        self._timeline: CollectiveTimeline | None = None

    def barrier(self, process_set: int = GLOBAL_SET) -> Handle:
        """See `Collectives.barrier`."""
        self._check_set(process_set)
        return self._run(["barrier.noname"], Kind.BARRIER, lambda: None)

    def join(self, device: int = -1) -> Handle:
        """See `Collectives.join`."""
        del device
        self._check_set(GLOBAL_SET)
        return self._run(["join.noname"], Kind.JOIN, lambda: 0)

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """See `Collectives.add_process_set`."""
        self._check_set(GLOBAL_SET)
        chosen = check_set_ranks(ranks, 1)
        if chosen in self._sets.values():
            raise ConfigError(f"there is a process set of the ranks {list(chosen)} already")
        number = next(self._set_ids)
        self._sets[number] = chosen
        return number

    def remove_process_set(self, process_set: int) -> bool:
        """See `Collectives.remove_process_set`."""
        self._check_set(GLOBAL_SET)
        if process_set == GLOBAL_SET:
            return False
        return self._sets.pop(process_set, None) is not None

    def start_timeline(self, path: str | PathLike[str], mark_cycles: bool = False) -> None:
        """See `Collectives.start_timeline`."""
        self._check_set(GLOBAL_SET)
        self.stop_timeline()
        self._timeline = CollectiveTimeline(timeline_path(path, 0) or path, mark_cycles=mark_cycles)

    def stop_timeline(self) -> None:
        """See `Collectives.stop_timeline`."""
        if self._timeline is not None:
            self._timeline.close()
            self._timeline = None

    def close(self) -> None:
        """See `Collectives.close`."""
        self._closed = True
        self.stop_timeline()

    def _begin(self, operation: Operation) -> Handle:
        return self._run(operation.names, operation.kind, partial(_result_of, operation))

    def _run(self, names: Sequence[str], kind: Kind, action: Callable[[], Any]) -> Handle:
        handle = Handle(next(self._numbers), names[0])
        try:
            with torch.no_grad():
                handle.finish(action())
        except MismatchError as error:
            handle.fail(error)
        if self._timeline is not None:
            self._record(self._timeline, names, kind.name)
        return handle

    def _record(self, timeline: CollectiveTimeline, names: Sequence[str], kind: str) -> None:
        timeline.cycle()
        for name in names:
            timeline.negotiating(name, kind)
            timeline.submitted(name, 0)
            timeline.negotiated(name)
            timeline.begin(name, kind)
            timeline.end(name)
        timeline.flush()


def _result_of(operation: Operation) -> Any:
    """Return what an operation gives to a rank that is alone.

    Raises:
        MismatchError: What several ranks would find out together.
    """
    kind, tensors, names, _, (op, factors_), outs, _, rows, splits_device = operation
    if kind in ROWS and any(tensor.ndim == 0 for tensor in tensors):
        raise MismatchError(f"{names[0]}: {kind.name.lower()} takes no scalars, they have no rows")
    if kind is Kind.REDUCESCATTER and op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise MismatchError(f"{names[0]}: reducescatter takes SUM and AVERAGE, not {op!r}")
    if kind is Kind.ALLTOALL:
        received = row_counts(rows, splits_device)
        return tensors[0].detach()[: rows[0]].clone(), received
    scales = (1.0, 1.0)
    if kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER):
        scales = factors(op, *factors_, 1)
    pairs = zip(tensors, outs or [torch.empty_like(each) for each in tensors], strict=True)
    results = [_scaled(tensor, out, scales) for tensor, out in pairs]
    return results[0] if operation.is_single else results


def _scaled(tensor: Tensor, out: Tensor, scales: tuple[float, float]) -> Tensor:
    """Write ``tensor`` times both factors to ``out``, one rounding after the other."""
    if out is not tensor:
        out.copy_(tensor)
    for factor in scales:
        scale_(out, factor)
    return out
