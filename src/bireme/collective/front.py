"""What all engines have in common: the operations by name, and what is refused at submission.

A call becomes an `Operation` once everything that one rank can see has been checked; the engines,
which derive from `Front`, only begin it.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bireme.collective.base import GLOBAL_SET, How
from bireme.collective.checks import (
    check_names,
    check_outs,
    check_reduction,
    check_root,
    check_tensor,
    splits_of,
)
from bireme.collective.handles import Handle
from bireme.core.negotiation.messages import Key, Kind
from bireme.errors import ConfigError, EngineClosed
from bireme.types.topology import ReduceOp, Topology

__all__ = ("Front", "Operation")

_SINGLE = (Kind.BROADCAST, Kind.ALLTOALL)


class Operation(NamedTuple):
    """One submission, checked."""

    kind: Kind
    tensors: Sequence[Tensor]
    names: Sequence[str]
    process_set: int
    how: How = (ReduceOp.AVERAGE, (1.0, 1.0))
    outs: Sequence[Tensor] | None = None
    root: int = -1
    """Of a broadcast."""
    rows: tuple[int, ...] = ()
    """Of an all-to-all: how many go to each rank."""
    splits_device: torch.device | None = None

    @property
    def is_single(self) -> bool:
        """Whether the handle's result is that of the one tensor, not a list."""
        return self.kind in _SINGLE


class Front(ABC):
    """The part of `Collectives` that does not depend on who carries the operations out.

    Args:
        topology: This process's place in the job.
        sets: The ranks of each process set; the engine changes it.
    """

    def __init__(self, topology: Topology, sets: dict[int, tuple[int, ...]]) -> None:
        self._topology = topology
        self._sets = sets
        self._numbers = itertools.count(1)
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
        how = (op, (prescale, postscale))
        handle = self._known(tensors, names, how, outs, process_set)
        if handle is not None:
            return handle
        self._check_reduction(tensors, names, how, process_set)
        check_outs(tensors, outs)
        return self._begin(Operation(Kind.ALLREDUCE, tensors, names, process_set, how, outs))

    def allreduce_again(
        self, key: Key, tensor: Tensor, out: Tensor | None, how: How
    ) -> Handle | None:
        """See `Collectives.allreduce_again`."""
        return None

    def allgather(
        self, tensors: Sequence[Tensor], *, names: Sequence[str], process_set: int = GLOBAL_SET
    ) -> Handle:
        """See `Collectives.allgather`."""
        self._check(tensors, names, process_set)
        return self._begin(Operation(Kind.ALLGATHER, tensors, names, process_set))

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
        how = (op, (prescale, postscale))
        self._check_reduction(tensors, names, how, process_set)
        return self._begin(Operation(Kind.REDUCESCATTER, tensors, names, process_set, how))

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
        outs = None if out is None else [out]
        check_outs([tensor], outs)
        return self._begin(
            Operation(Kind.BROADCAST, [tensor], [name], process_set, outs=outs, root=root_rank)
        )

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
        rows = splits_of(tensor, splits, len(self._sets[process_set]), name)
        device = splits.device if splits is not None else torch.device("cpu")
        return self._begin(
            Operation(Kind.ALLTOALL, [tensor], [name], process_set, rows=rows, splits_device=device)
        )

    def process_sets(self) -> dict[int, tuple[int, ...]]:
        """See `Collectives.process_sets`."""
        return dict(self._sets)

    # What an engine adds.

    @abstractmethod
    def _begin(self, operation: Operation) -> Handle:
        """Submit an operation that has been checked."""

    def _known(
        self,
        tensors: Sequence[Tensor],
        names: Sequence[str],
        how: How,
        outs: Sequence[Tensor] | None,
        process_set: int,
    ) -> Handle | None:
        """Submit an all-reduce without checks if one just like it has passed them; else None."""
        return None

    # Checks.

    def _check_set(self, process_set: int) -> None:
        if self._closed:
            raise EngineClosed("the collectives have been shut down; start them again")
        if process_set not in self._sets:
            raise ConfigError(f"there is no process set {process_set}, only {sorted(self._sets)}")

    def _check(self, tensors: Sequence[Tensor], names: Sequence[str], process_set: int) -> None:
        self._check_set(process_set)
        check_names(tensors, names)
        for tensor, name in zip(tensors, names, strict=True):
            check_tensor(tensor, name)

    def _check_reduction(
        self, tensors: Sequence[Tensor], names: Sequence[str], how: How, process_set: int
    ) -> None:
        self._check(tensors, names, process_set)
        for tensor in tensors:
            check_reduction(tensor.dtype, *how)
