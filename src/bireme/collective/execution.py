"""Carries buckets out: packs tensors, exchanges them, scales, and gives the results.

Called by the engine, one bucket at a time, in the order that all ranks agreed on. A rank that has
joined has no tensors and takes part with elements that change nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from bireme.collective.adasum import adasum_
from bireme.collective.arithmetic import factors, row_counts, scale_
from bireme.collective.pieces import (
    Pieces,
    are_here,
    blank,
    pack,
    result_of,
    strewn,
    tensor_of,
)
from bireme.collective.planes import Plane
from bireme.collective.submissions import Part
from bireme.collective.timeline import CollectiveTimeline
from bireme.core.negotiation.fusion import Bucket
from bireme.core.negotiation.messages import Kind
from bireme.types.topology import ReduceOp

__all__ = ("Execution",)


class Execution:
    """Runs buckets on data planes.

    Attributes:
        timeline: Where activities are recorded, or None.
    """

    def __init__(self) -> None:
        self.timeline: CollectiveTimeline | None = None
        self._ranks: Sequence[int] = ()
        self._finished: list[tuple[Part, Any]] = []
        self._buffers: dict[tuple[str, torch.device], Tensor] = {}
        self._run: dict[Kind, Callable[[Bucket, Pieces, Plane, torch.device], None]] = {
            Kind.ALLREDUCE: self._allreduce,
            Kind.ALLGATHER: self._allgather,
            Kind.BROADCAST: self._broadcast,
            Kind.REDUCESCATTER: self._reducescatter,
            Kind.ALLTOALL: self._alltoall,
        }

    def run(
        self,
        bucket: Bucket,
        pieces: Pieces,
        plane: Plane,
        ranks: Sequence[int],
        device: torch.device,
    ) -> list[tuple[Part, Any]]:
        """Run one bucket and return what comes out for its pieces.

        Args:
            bucket: What all ranks run.
            pieces: This rank's tensors, one for each member; None where it has joined.
            plane: What connects the ranks.
            ranks: The ranks of the set.
            device: Where the tensors are.
        """
        self._ranks = ranks
        with torch.no_grad():
            if self.timeline is None:
                self._run[bucket.request.kind](bucket, pieces, plane, device)
            else:
                self._record(self.timeline, bucket, pieces, plane, device)
        finished, self._finished = self._finished, []
        return finished

    def _record(
        self,
        timeline: CollectiveTimeline,
        bucket: Bucket,
        pieces: Pieces,
        plane: Plane,
        device: torch.device,
    ) -> None:
        kind = bucket.request.kind
        for each in bucket.members:
            timeline.begin(each.request.name, kind.name)
        self._run[kind](bucket, pieces, plane, device)
        for each in bucket.members:
            timeline.end(each.request.name, each.request.dtype, each.request.shape)
        timeline.flush()

    def release_memory(self) -> None:
        """Free the fusion buffers."""
        self._buffers.clear()

    # One method for each kind.

    def _allreduce(
        self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device
    ) -> None:
        request = bucket.request
        op = ReduceOp(request.op)
        before, after = factors(op, request.prescale, request.postscale, plane.size)
        if len(pieces) == 1:
            piece = pieces[0]
            if piece is None or piece.tensor is None:
                self._reduce(blank(request, bucket.num_elements, op, device), op, plane, bucket)
                return
            out = result_of(piece)
            flat = out.view(-1)
            scale_(flat, before)
            self._reduce(flat, op, plane, bucket)
            scale_(flat, after)
            increment_version(out)
            self._finish(piece, piece.out)
            return
        if plane.reduces_many and are_here(pieces):
            places = strewn(pieces, request.dtype, before, after)
            if places is not None:
                self._reduce_many(*places, pieces, plane, bucket, (before, after))
                return
        flat = self._buffer(request.dtype, bucket.num_elements, device)
        views = self._views(bucket, flat)
        self._timed("MEMCPY_IN_FUSION_BUFFER", bucket, lambda: pack(views, pieces, op))
        scale_(flat, before)
        self._reduce(flat, op, plane, bucket)
        scale_(flat, after)
        self._timed("MEMCPY_OUT_FUSION_BUFFER", bucket, lambda: self._unpack(views, pieces))

    def _reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        pieces: Sequence[Part],
        plane: Plane,
        bucket: Bucket,
        factors: tuple[float, float],
    ) -> None:
        """Reduce tensors where they are, without a buffer."""
        op = ReduceOp(bucket.request.op)
        op = ReduceOp.SUM if op is ReduceOp.AVERAGE else op
        self._timed(
            f"{plane.name}_ALLREDUCE",
            bucket,
            lambda: plane.all_reduce_many(sources, targets, op, factors),
        )
        increment_version(targets)
        self._finished += zip(pieces, targets, strict=True)

    def _reduce(self, flat: Tensor, op: ReduceOp, plane: Plane, bucket: Bucket) -> None:
        if op is ReduceOp.ADASUM:
            self._timed("ADASUM", bucket, lambda: adasum_(flat, plane))
            return
        if op is ReduceOp.AVERAGE:
            op = ReduceOp.SUM
        if flat.dtype is torch.bool:
            flat, op = flat.view(torch.uint8), _BOOL_OPS[op]
        self._timed(f"{plane.name}_ALLREDUCE", bucket, lambda: plane.all_reduce(flat, op))

    def _broadcast(
        self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device
    ) -> None:
        root = self._ranks.index(bucket.request.root)
        label = f"{plane.name}_BROADCAST"
        present = [piece for piece in pieces if piece is not None]
        if len(present) == 1:
            piece = present[0]
            out = result_of(piece, copy=plane.rank == root)
            if out.numel():
                self._timed(label, bucket, lambda: plane.broadcast(out.view(-1), root))
                if plane.rank != root:
                    increment_version(out)
            self._finish(piece, piece.out)
            return
        flat = self._buffer(bucket.request.dtype, bucket.num_elements, device)
        views = self._views(bucket, flat)
        if plane.rank == root:
            pack(views, pieces, ReduceOp.SUM)
        self._timed(label, bucket, lambda: plane.broadcast(flat, root))
        self._unpack(views, pieces)

    def _allgather(
        self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device
    ) -> None:
        for member, piece in zip(bucket.members, pieces, strict=True):
            tensor = tensor_of(piece)
            row = prod(tensor.shape[1:])
            whole = tensor.new_empty((sum(member.sizes), *tensor.shape[1:]))
            sizes = [rows * row for rows in member.sizes]
            if whole.numel():
                action = partial(plane.all_gather, tensor.view(-1), whole.view(-1), sizes)
                self._timed(f"{plane.name}_ALLGATHER", bucket, action)
            self._finish(piece, whole)

    def _alltoall(self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device) -> None:
        for member, piece in zip(bucket.members, pieces, strict=True):
            tensor = tensor_of(piece)
            size, rank = plane.size, plane.rank
            sent = member.sizes[rank * size : (rank + 1) * size]
            received = member.sizes[rank::size]
            row = prod(tensor.shape[1:])
            whole = tensor.new_empty((sum(received), *tensor.shape[1:]))
            if row and any(member.sizes):
                action = partial(
                    plane.all_to_all,
                    tensor[: sum(sent)].view(-1),
                    [rows * row for rows in sent],
                    whole.view(-1),
                    [rows * row for rows in received],
                )
                self._timed(f"{plane.name}_ALLTOALL", bucket, action)
            splits_device = piece.splits_device if piece is not None else None
            counts = row_counts(received, splits_device)
            self._finish(piece, (whole, counts))

    def _reducescatter(
        self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device
    ) -> None:
        for member, piece in zip(bucket.members, pieces, strict=True):
            tensor = tensor_of(piece)
            request = member.request
            op = ReduceOp(request.op)
            before, after = factors(op, request.prescale, request.postscale, plane.size)
            if before != 1.0:
                tensor = tensor.clone()
                scale_(tensor, before)
            rows = _dealt(tensor.shape[0], plane.size)
            out = tensor.new_empty((rows[plane.rank], *tensor.shape[1:]))
            if tensor.numel():
                row = prod(tensor.shape[1:])
                action = partial(_scatter_sum, tensor, out, rows, row, plane)
                self._timed(f"{plane.name}_REDUCESCATTER", bucket, action)
            scale_(out, after)
            self._finish(piece, out)

    # What they share.

    def _buffer(self, dtype: str, num_elements: int, device: torch.device) -> Tensor:
        """Return memory for a bucket, kept for the next one; its elements are anything."""
        key = (dtype, device)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < num_elements:
            self._buffers[key] = buffer = torch.empty(
                num_elements, dtype=getattr(torch, dtype), device=device
            )
        return buffer[:num_elements]

    def _views(self, bucket: Bucket, flat: Tensor) -> list[Tensor]:
        """Return the members' places in the buffer, in their shapes."""
        kept = bucket.cache
        if kept is not None and kept[0] == flat.data_ptr():
            views: list[Tensor] = kept[1]
            return views
        parts = torch.split(flat, [each.num_elements for each in bucket.members])
        views = [
            part.view(each.request.shape) for part, each in zip(parts, bucket.members, strict=True)
        ]
        bucket.cache = (flat.data_ptr(), views)
        return views

    def _unpack(self, views: Sequence[Tensor], pieces: Pieces) -> None:
        sources: list[Tensor] = []
        outs: list[Tensor] = []
        present: list[Part] = []
        for view, piece in zip(views, pieces, strict=True):
            if piece is not None and piece.tensor is not None:
                sources.append(view)
                outs.append(piece.out if piece.out is not None else torch.empty_like(piece.tensor))
                present.append(piece)
        if outs:
            torch._foreach_copy_(outs, sources)
        for piece, out in zip(present, outs, strict=True):
            self._finish(piece, out)

    def _finish(self, piece: Part | None, result: Any) -> None:
        if piece is not None:
            self._finished.append((piece, result))

    def _timed(self, activity: str, bucket: Bucket, action: Callable[[], Any]) -> None:
        """Do something, as an activity of the bucket's tensors where there is a timeline."""
        timeline = self.timeline
        if timeline is None:
            action()
            return
        names = [each.request.name for each in bucket.members]
        for name in names:
            timeline.begin(name, activity)
        action()
        for name in names:
            timeline.end(name)


_BOOL_OPS = {
    ReduceOp.SUM: ReduceOp.MAX,
    ReduceOp.MAX: ReduceOp.MAX,
    ReduceOp.MIN: ReduceOp.MIN,
    ReduceOp.PRODUCT: ReduceOp.MIN,
}


def _dealt(num_rows: int, size: int) -> list[int]:
    """Return each rank's rows: the first ones get one more of a remainder."""
    return [num_rows // size + (rank < num_rows % size) for rank in range(size)]


def _scatter_sum(tensor: Tensor, out: Tensor, rows: Sequence[int], row: int, plane: Plane) -> None:
    """Write this rank's rows of the sum to ``out``; adds in the order of the ranks."""
    mine = rows[plane.rank] * row
    parts = out.new_empty(plane.size * mine)
    sent = [each * row for each in rows]
    plane.all_to_all(tensor.view(-1), sent, parts, [mine] * plane.size)
    stacked = parts.view(plane.size, *out.shape)
    if out.dtype is torch.bool:
        out.copy_(stacked.any(0))
    elif out.dtype in (torch.float16, torch.bfloat16):
        out.copy_(stacked.sum(0, dtype=torch.float32))
    else:
        torch.sum(stacked, 0, dtype=out.dtype, out=out)
