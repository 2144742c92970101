"""The data plane: what moves and adds elements between the ranks of one process set.

`TorchPlane` is any backend of ``torch.distributed``; the groups are made beside its default one, so
a script's own use of ``torch.distributed`` is not disturbed. Called by `Execution`, one call at a
time and in one order on all ranks.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor, distributed

from bireme.collective.backend_names import make_process_group
from bireme.errors import CollectiveError, UnsupportedError
from bireme.types.topology import ReduceOp

__all__ = ("Plane", "TorchPlane")


class Plane(Protocol):
    """Blocking exchanges of flat, contiguous tensors.

    On CUDA devices the calls return when the work is in the current stream.

    Raises:
        Exception: Of whatever kind; the plane is of no use any more.
    """

    name: str
    """What timelines call it, in capitals."""
    rank: int
    size: int

    @property
    def reduces_many(self) -> bool:
        """Whether `all_reduce_many` can be called."""

    def all_reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        op: ReduceOp,
        factors: tuple[float, float],
    ) -> None:
        """Do as `all_reduce` of one tensor of all sources, which other ranks may call instead.

        Args:
            sources: Contiguous, of one type; neither bool nor complex.
            targets: Where the results go; may be the sources.
            op: SUM, MIN, MAX or PRODUCT.
            factors: What is multiplied by before and after; of float32 and float64 only.
        """

    def all_reduce(self, flat: Tensor, op: ReduceOp) -> None:
        """Reduce in place; ``op`` is SUM, MIN, MAX or PRODUCT."""

    def broadcast(self, flat: Tensor, root: int) -> None:
        """Overwrite with what the root, a rank of the set, has."""

    def all_gather(self, source: Tensor, whole: Tensor, sizes: Sequence[int]) -> None:
        """Write every rank's ``source`` of ``sizes[rank]`` elements into ``whole``, in order."""

    def all_to_all(
        self,
        source: Tensor,
        sent: Sequence[int],
        whole: Tensor,
        received: Sequence[int],
    ) -> None:
        """Send runs of ``sent[rank]`` elements and receive runs of ``received[rank]``."""

    def give_up(self, reason: str) -> None:
        """End what is under way, from another thread; the other ranks fail then."""

    def close(self) -> None:
        """Leave, after the last call has returned."""


_OPS: dict[ReduceOp, Any] = {
    ReduceOp.SUM: distributed.ReduceOp.SUM,
    ReduceOp.MIN: distributed.ReduceOp.MIN,
    ReduceOp.MAX: distributed.ReduceOp.MAX,
    ReduceOp.PRODUCT: distributed.ReduceOp.PRODUCT,
}


class TorchPlane:
    """A `Plane` over a process group of ``torch.distributed``.

    Args:
        backend: Its name, such as ``gloo`` or ``nccl``.
        store: A store with keys of its own for this group.
        rank: This rank in the group.
        size: Its ranks.
        found_s: How long the ranks wait for each other now.
        exchange_s: Limit of each exchange.
    """

    def __init__(
        self,
        backend: str,
        store: Any,
        rank: int,
        size: int,
        *,
        found_s: float,
        exchange_s: float,
    ) -> None:
        self.name = backend.upper()
        self.rank = rank
        self.size = size
        self._is_gloo = backend == "gloo"
        self._made: Any = make_process_group(backend, store, rank, size, timedelta(seconds=found_s))
        self._group.set_timeout(timedelta(seconds=exchange_s))

    reduces_many = False

    def all_reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        op: ReduceOp,
        factors: tuple[float, float],
    ) -> None:
        """See `Plane`."""
        raise UnsupportedError(f"{self.name} reduces one tensor at a time")

    def all_reduce(self, flat: Tensor, op: ReduceOp) -> None:
        """See `Plane`."""
        if self._is_gloo and flat.dtype is torch.int16:
            wide = flat.to(torch.int32)
            self.all_reduce(wide, op)
            flat.copy_(wide)
            return
        options = distributed.AllreduceOptions()
        options.reduceOp = _OPS[op]
        self._group.allreduce([flat], options).wait()

    def broadcast(self, flat: Tensor, root: int) -> None:
        """See `Plane`."""
        options = distributed.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        self._group.broadcast([_raw(flat)], options).wait()

    def all_gather(self, source: Tensor, whole: Tensor, sizes: Sequence[int]) -> None:
        """See `Plane`."""
        if len(set(sizes)) == 1:
            if sizes[0]:
                self._group._allgather_base(_raw(whole), _raw(source)).wait()
            return
        parts = torch.split(whole, list(sizes))
        parts[self.rank].copy_(source)
        for rank, part in enumerate(parts):
            if sizes[rank]:
                self.broadcast(part, rank)

    def all_to_all(
        self,
        source: Tensor,
        sent: Sequence[int],
        whole: Tensor,
        received: Sequence[int],
    ) -> None:
        """See `Plane`."""
        width = source.element_size()
        self._group.alltoall_base(
            _raw(whole),
            _raw(source),
            [width * count for count in received],
            [width * count for count in sent],
        ).wait()

    def give_up(self, reason: str) -> None:
        """See `Plane`."""
        del reason
        group, self._made = self._made, None
        if group is not None and not self._is_gloo:
            group.abort()
        # Gloo cannot abort: its connections close with the last reference, and peers see that.

    def close(self) -> None:
        """See `Plane`."""
        group, self._made = self._made, None
        if group is not None:
            group.shutdown()

    @property
    def _group(self) -> Any:
        if self._made is None:
            raise CollectiveError("this rank has left the group")
        return self._made


def _raw(flat: Tensor) -> Tensor:
    """Return a tensor's memory as bytes, which every backend moves."""
    return flat.view(torch.uint8)
