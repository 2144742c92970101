"""The data plane over our own backend, without ``torch.distributed`` in between.

Called by `Runner`, which makes planes by the name of a backend.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from bireme.collective.backend import BACKEND
from bireme.collective.bank.elements import Reduction
from bireme.collective.bank.futex import futex_number
from bireme.collective.founding import found_group
from bireme.collective.planes import Plane, TorchPlane
from bireme.types.topology import ReduceOp

__all__ = ("BankPlane", "best_for_cpu", "make_plane")

_OPS = {
    ReduceOp.SUM: Reduction.SUM,
    ReduceOp.MIN: Reduction.MIN,
    ReduceOp.MAX: Reduction.MAX,
    ReduceOp.PRODUCT: Reduction.PRODUCT,
}


class BankPlane:
    """A `Plane` through shared memory within a machine.

    Args:
        store: A store with keys of its own for this group.
        rank: This rank in the group.
        size: Its ranks.
        found_s: How long the ranks wait for each other now.
        exchange_s: Limit of each exchange.
    """

    def __init__(
        self, store: Any, rank: int, size: int, *, found_s: float, exchange_s: float
    ) -> None:
        self.name = BACKEND.upper()
        self.rank = rank
        self.size = size
        self._limit_s = exchange_s
        self._group = found_group(store, rank, size, timedelta(seconds=found_s))
        self._exchange = self._group.exchange
        self._many = self._exchange.many

    def all_reduce(self, flat: Tensor, op: ReduceOp) -> None:
        """See `Plane`."""
        self._exchange.all_reduce(flat, _OPS[op], self._limit_s)

    @property
    def reduces_many(self) -> bool:
        """See `Plane`."""
        return self._many is not None

    def all_reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        op: ReduceOp,
        factors: tuple[float, float],
    ) -> None:
        """See `Plane`."""
        assert self._many is not None
        self._many.all_reduce_many(sources, targets, _OPS[op], self._limit_s, factors)

    def broadcast(self, flat: Tensor, root: int) -> None:
        """See `Plane`."""
        self._exchange.broadcast(flat, root, self._limit_s)

    def all_gather(self, source: Tensor, whole: Tensor, sizes: Sequence[int]) -> None:
        """See `Plane`."""
        outputs = torch.split(whole, list(sizes))
        self._exchange.all_gather(source, outputs, self._limit_s)

    def all_to_all(
        self,
        source: Tensor,
        sent: Sequence[int],
        whole: Tensor,
        received: Sequence[int],
    ) -> None:
        """See `Plane`."""
        self._exchange.all_to_all(
            torch.split(source, list(sent)),
            torch.split(whole, list(received)),
            self._limit_s,
            are_equal=False,
        )

    def give_up(self, reason: str) -> None:
        """See `Plane`."""
        self._exchange.give_up(reason)

    def close(self) -> None:
        """See `Plane`."""
        self._group.shutdown()


def best_for_cpu() -> str:
    """Return the name of the backend that is taken for tensors on the CPU unless told otherwise.

    Ours; Gloo where the system has no futexes to sleep at.
    """
    return BACKEND if futex_number() is not None else "gloo"


def make_plane(
    backend: str, store: Any, rank: int, size: int, *, found_s: float, exchange_s: float
) -> Plane:
    """Return one rank's side of a new data plane; every rank of it calls this.

    Args:
        backend: ``bireme``, or any of ``torch.distributed``.
        store: A store with keys of its own for this group.
        rank: This rank in the group.
        size: Its ranks.
        found_s: How long the ranks wait for each other now.
        exchange_s: Limit of each exchange.
    """
    if backend == BACKEND:
        return BankPlane(store, rank, size, found_s=found_s, exchange_s=exchange_s)
    return TorchPlane(backend, store, rank, size, found_s=found_s, exchange_s=exchange_s)
