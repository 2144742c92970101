"""Carries buckets out: packs tensors, exchanges them, scales, and gives the results.

Called by the engine, one bucket at a time, in the order that all ranks agreed on. A rank that has
joined has no tensors and takes part with elements that change nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from math import prod
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from bireme.collective.adasum import adasum_
from bireme.collective.arithmetic import factors, row_counts, scale_
from bireme.collective.planes import Plane
from bireme.collective.submissions import Part
from bireme.collective.timeline import CollectiveTimeline
from bireme.core.negotiation.fusion import Bucket
from bireme.core.negotiation.messages import Kind, Request
from bireme.types.topology import ReduceOp

__all__ = ("Execution",)

Pieces = Sequence[Part | None]

_TENSOR_OF, _OUT_OF = attrgetter("tensor"), attrgetter("out")


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
                self._reduce(_blank(request, bucket.num_elements, op, device), op, plane, bucket)
                return
            out = _result(piece)
            flat = out.view(-1)
            scale_(flat, before)
            self._reduce(flat, op, plane, bucket)
            scale_(flat, after)
            increment_version(out)
            self._finish(piece, piece.out)
            return
        if plane.reduces_many and (places := _strewn(pieces, request.dtype, before, after)):
            self._reduce_many(*places, pieces, plane, bucket, (before, after))
            return
        flat = self._buffer(request.dtype, bucket.num_elements, device)
        views = self._views(bucket, flat)
        self._timed("MEMCPY_IN_FUSION_BUFFER", bucket, lambda: _pack(views, pieces, op))
        scale_(flat, before)
        self._reduce(flat, op, plane, bucket)
        scale_(flat, after)
        self._timed("MEMCPY_OUT_FUSION_BUFFER", bucket, lambda: self._unpack(views, pieces))

    def _reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        pieces: Pieces,
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
        self._finished += zip(pieces, targets, strict=True)  # type: ignore[arg-type]

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
            out = _result(piece, copy=plane.rank == root)
            if out.numel():
                self._timed(label, bucket, lambda: plane.broadcast(out.view(-1), root))
                if plane.rank != root:
                    increment_version(out)
            self._finish(piece, piece.out)
            return
        flat = self._buffer(bucket.request.dtype, bucket.num_elements, device)
        views = self._views(bucket, flat)
        if plane.rank == root:
            _pack(views, pieces, ReduceOp.SUM)
        self._timed(label, bucket, lambda: plane.broadcast(flat, root))
        self._unpack(views, pieces)

    def _allgather(
        self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device
    ) -> None:
        for member, piece in zip(bucket.members, pieces, strict=True):
            tensor = _tensor_of(piece)
            row = prod(tensor.shape[1:])
            whole = tensor.new_empty((sum(member.sizes), *tensor.shape[1:]))
            sizes = [rows * row for rows in member.sizes]
            if whole.numel():
                action = partial(plane.all_gather, tensor.view(-1), whole.view(-1), sizes)
                self._timed(f"{plane.name}_ALLGATHER", bucket, action)
            self._finish(piece, whole)

    def _alltoall(self, bucket: Bucket, pieces: Pieces, plane: Plane, device: torch.device) -> None:
        for member, piece in zip(bucket.members, pieces, strict=True):
            tensor = _tensor_of(piece)
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
            tensor = _tensor_of(piece)
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


_SCALED = frozenset({"float32", "float64"})
_PLAIN = _SCALED | {"float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8"}
"""What `Plane.all_reduce_many` takes with factors, and without."""

_BOOL_OPS = {
    ReduceOp.SUM: ReduceOp.MAX,
    ReduceOp.MAX: ReduceOp.MAX,
    ReduceOp.MIN: ReduceOp.MIN,
    ReduceOp.PRODUCT: ReduceOp.MIN,
}


def _tensor_of(piece: Part | None) -> Tensor:
    # Only an allreduce goes without a tensor: the coordinator sees to it.
    assert piece is not None
    assert piece.tensor is not None
    return piece.tensor.detach()


def _result(piece: Part, *, copy: bool = True) -> Tensor:
    """Return the tensor that becomes the result, with the operation's input in it if ``copy``."""
    tensor, out = piece.tensor, piece.out
    assert tensor is not None
    if out is tensor:
        return out.detach()
    if out is None:
        out = torch.empty_like(tensor)
        piece.out = out
    if copy:
        out.copy_(tensor)
    return out


def _neutral(dtype: torch.dtype, op: ReduceOp) -> float | int | bool:
    """Return what changes nothing in a reduction."""
    if op is ReduceOp.PRODUCT:
        return 1
    if op not in (ReduceOp.MIN, ReduceOp.MAX):
        return 0
    if dtype is torch.bool:
        return op is ReduceOp.MIN
    if dtype.is_floating_point:
        return float("inf") if op is ReduceOp.MIN else float("-inf")
    limits = torch.iinfo(dtype)
    return limits.max if op is ReduceOp.MIN else limits.min


def _blank(request: Request, num_elements: int, op: ReduceOp, device: torch.device) -> Tensor:
    dtype = getattr(torch, request.dtype)
    return torch.full((num_elements,), _neutral(dtype, op), dtype=dtype, device=device)


def _strewn(
    pieces: Pieces, dtype: str, before: float, after: float
) -> tuple[list[Tensor], list[Tensor]] | None:
    """Return the pieces' tensors and where their results go, if a plane can take them so.

    A step has hundreds of pieces, most often all reduced in place: the results are in the very
    same list then, and no line here runs once for each.
    """
    if dtype not in (_SCALED if before != 1.0 or after != 1.0 else _PLAIN):
        return None
    if any(map(is_, pieces, repeat(None))):
        return None
    sources: list[Tensor] = list(map(_TENSOR_OF, pieces))
    if any(map(is_, sources, repeat(None))) or any(map(Tensor.is_neg, sources)):
        return None
    outs: list[Tensor | None] = list(map(_OUT_OF, pieces))
    if all(map(is_, outs, sources)):
        return sources, sources
    targets: list[Tensor] = []
    for source, out in zip(sources, outs, strict=True):
        if out is None:
            targets.append(torch.empty_like(source))
        elif out is source or (out.numel() == source.numel() and not out.is_neg()):
            targets.append(out)
        else:
            return None
    return sources, targets


def _pack(views: list[Tensor], pieces: Pieces, op: ReduceOp) -> None:
    tensors = [piece.tensor for piece in pieces if piece is not None and piece.tensor is not None]
    if len(tensors) == len(views):
        torch._foreach_copy_(views, tensors)
        return
    for view, piece in zip(views, pieces, strict=True):
        if piece is None or piece.tensor is None:
            view.fill_(_neutral(view.dtype, op))
        else:
            view.copy_(piece.tensor)


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
