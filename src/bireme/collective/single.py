"""The engine of a job of one process: every operation is done when its submission returns.

Made by `start`; no threads, no sockets.
"""

import itertools
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from bireme.collective.arithmetic import factors, scale_
from bireme.collective.base import GLOBAL_SET
from bireme.collective.checks import (
    check_names,
    check_outs,
    check_reduction,
    check_root,
    check_set_ranks,
    check_tensor,
    splits_of,
)
from bireme.collective.handles import Handle
from bireme.collective.timeline import CollectiveTimeline, timeline_path
from bireme.errors import ConfigError, EngineClosed, MismatchError
from bireme.types.topology import ReduceOp, Topology

__all__ = ("SingleProcess",)


class SingleProcess:
    """`Collectives` of one rank.

    Example:
        >>> engine = SingleProcess()
        >>> engine.allreduce([torch.ones(2)], names=["a"], postscale=3.0).wait()
        [tensor([3., 3.])]
        >>> engine.close()
    """

    def __init__(self, topology: Topology | None = None) -> None:
        self._topology = topology or Topology.alone()
        if self._topology.size != 1:
            raise ConfigError(f"one process cannot stand for {self._topology.size} ranks")
        self._numbers = itertools.count(1)
        self._set_ids = itertools.count(1)
        self._sets: dict[int, tuple[int, ...]] = {GLOBAL_SET: (0,)}
        self._timeline: CollectiveTimeline | None = None
        self._closed = False

    @property
    def topology(self) -> Topology:
        """See `Collectives`."""
        return self._topology

    def allreduce(
        self,
        tensors: Sequence[Tensor],
        *,
        names: Sequence[str],
        op: ReduceOp = ReduceOp.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        outs: Sequence[Tensor] | None = None,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.allreduce`."""
        self._check(tensors, names, process_set)
        for tensor in tensors:
            check_reduction(tensor.dtype, op, (prescale, postscale))
        check_outs(tensors, outs)
        scales = factors(op, prescale, postscale, 1)

        def reduce() -> list[Tensor]:
            pairs = zip(tensors, outs or [torch.empty_like(t) for t in tensors], strict=True)
            return [_scaled(tensor, out, scales) for tensor, out in pairs]

        return self._run(names, "ALLREDUCE", tensors, reduce)

    def allgather(
        self, tensors: Sequence[Tensor], *, names: Sequence[str], process_set: int = GLOBAL_SET
    ) -> Handle:
        """See `Collectives.allgather`."""
        self._check(tensors, names, process_set)
        return self._run(
            names, "ALLGATHER", tensors, lambda: [tensor.detach().clone() for tensor in tensors]
        )

    def reducescatter(
        self,
        tensors: Sequence[Tensor],
        *,
        names: Sequence[str],
        op: ReduceOp = ReduceOp.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.reducescatter`."""
        self._check(tensors, names, process_set)
        for tensor in tensors:
            check_reduction(tensor.dtype, op, (prescale, postscale))
        scales = factors(op, prescale, postscale, 1)

        def reduce() -> list[Tensor]:
            if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
                raise MismatchError(f"{names[0]}: reducescatter takes SUM and AVERAGE, not {op!r}")
            return [_scaled(tensor, torch.empty_like(tensor), scales) for tensor in tensors]

        return self._run(names, "REDUCESCATTER", tensors, reduce)

    def broadcast(
        self,
        tensor: Tensor,
        root_rank: int,
        *,
        name: str,
        out: Tensor | None = None,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.broadcast`."""
        self._check([tensor], [name], process_set)
        check_root(root_rank, self._sets[process_set])
        check_outs([tensor], None if out is None else [out])

        def copy() -> Tensor:
            target = torch.empty_like(tensor) if out is None else out
            return _scaled(tensor, target, (1.0, 1.0))

        return self._run([name], "BROADCAST", None, copy)

    def alltoall(
        self,
        tensor: Tensor,
        splits: Tensor | None,
        *,
        name: str,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.alltoall`."""
        self._check([tensor], [name], process_set)
        rows = splits_of(tensor, splits, 1, name)
        device = splits.device if splits is not None else torch.device("cpu")

        def exchange() -> tuple[Tensor, Tensor]:
            received = torch.tensor(rows, dtype=torch.int32, device=device)
            return tensor.detach()[: rows[0]].clone(), received

        return self._run([name], "ALLTOALL", [tensor], exchange)

    def barrier(self, process_set: int = GLOBAL_SET) -> Handle:
        """See `Collectives.barrier`."""
        self._check_set(process_set)
        return self._run(["barrier.noname"], "BARRIER", None, lambda: None)

    def join(self, device: int = -1) -> Handle:
        """See `Collectives.join`."""
        del device
        self._check_set(GLOBAL_SET)
        return self._run(["join.noname"], "JOIN", None, lambda: 0)

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

    def process_sets(self) -> dict[int, tuple[int, ...]]:
        """See `Collectives.process_sets`."""
        return dict(self._sets)

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

    def _check_set(self, process_set: int) -> None:
        if self._closed:
            raise EngineClosed("the collectives have been shut down; start them again")
        if process_set not in self._sets:
            raise ConfigError(f"there is no process set {process_set}, only {list(self._sets)}")

    def _check(self, tensors: Sequence[Tensor], names: Sequence[str], process_set: int) -> None:
        self._check_set(process_set)
        check_names(tensors, names)
        for tensor, name in zip(tensors, names, strict=True):
            check_tensor(tensor, name)

    def _run(
        self,
        names: Sequence[str],
        kind: str,
        ragged: Sequence[Tensor] | None,
        action: Callable[[], Any],
    ) -> Handle:
        """Do it, and return its handle; ``ragged`` are tensors that need rows."""
        handle = Handle(next(self._numbers), names[0])
        needs_rows = kind in ("ALLGATHER", "ALLTOALL", "REDUCESCATTER")
        try:
            if needs_rows and ragged and any(tensor.ndim == 0 for tensor in ragged):
                raise MismatchError(
                    f"{names[0]}: {kind.lower()} takes no scalars, they have no rows"
                )
            with torch.no_grad():
                handle.finish(action())
        except MismatchError as error:
            handle.fail(error)
        if self._timeline is not None:
            self._record(self._timeline, names, kind)
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


def _scaled(tensor: Tensor, out: Tensor, scales: tuple[float, float]) -> Tensor:
    """Write ``tensor`` times both factors to ``out``, one rounding after the other."""
    if out is not tensor:
        out.copy_(tensor)
    for factor in scales:
        scale_(out, factor)
    return out
