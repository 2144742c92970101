"""What an exchange takes of the operations of a bucket: their tensors, and where results go.

Called by `execution.py`. A rank that has joined has no operations, only blanks that change nothing.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import TypeGuard

import torch
from torch import Tensor

from bireme.collective.submissions import Part
from bireme.core.negotiation.messages import Request
from bireme.types.topology import ReduceOp

__all__ = ("Pieces", "are_here", "blank", "neutral", "pack", "result_of", "strewn", "tensor_of")

Pieces = Sequence[Part | None]
"""This rank's operations, one for each of a bucket; None where it has joined."""

_TENSOR_OF, _OUT_OF = attrgetter("tensor"), attrgetter("out")

_SCALED = frozenset({"float32", "float64"})
_PLAIN = _SCALED | {"float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8"}
"""What `Plane.all_reduce_many` takes with factors, and without."""


def are_here(pieces: Pieces) -> TypeGuard[Sequence[Part]]:
    """Return whether this rank takes part in all of them."""
    return not any(map(is_, pieces, repeat(None)))


def tensor_of(piece: Part | None) -> Tensor:
    """Return the tensor of an operation that has one, without its graph."""
    # Only an allreduce goes without a tensor: the coordinator sees to it.
    assert piece is not None
    assert piece.tensor is not None
    return piece.tensor.detach()


def result_of(piece: Part, *, copy: bool = True) -> Tensor:
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


def neutral(dtype: torch.dtype, op: ReduceOp) -> float | int | bool:
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


def blank(request: Request, num_elements: int, op: ReduceOp, device: torch.device) -> Tensor:
    """Return what a rank that has joined gives for an all-reduce."""
    dtype = getattr(torch, request.dtype)
    return torch.full((num_elements,), neutral(dtype, op), dtype=dtype, device=device)


def strewn(
    pieces: Sequence[Part], dtype: str, before: float, after: float
) -> tuple[list[Tensor], list[Tensor]] | None:
    """Return the pieces' tensors and where their results go, if a plane can take them so.

    A step has hundreds of pieces, most often all reduced in place: the results are in the very
    same list then, and no line here runs once for each.
    """
    if dtype not in (_SCALED if before != 1.0 or after != 1.0 else _PLAIN):
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


def pack(views: list[Tensor], pieces: Pieces, op: ReduceOp) -> None:
    """Copy tensors to their places in a buffer; what changes nothing where there is none."""
    tensors = [piece.tensor for piece in pieces if piece is not None and piece.tensor is not None]
    if len(tensors) == len(views):
        torch._foreach_copy_(views, tensors)
        return
    for view, piece in zip(views, pieces, strict=True):
        if piece is None or piece.tensor is None:
            view.fill_(neutral(view.dtype, op))
        else:
            view.copy_(piece.tensor)
