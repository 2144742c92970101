"""Which operations that run together share one exchange. PURE.

Called by every rank with the same operations in the same order, so all of them make the same
buckets.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from bireme.core.negotiation.messages import Key, Kind, Request
from bireme.types.topology import ReduceOp

__all__ = ("Bucket", "Planned", "elements_of", "fuse")

_FUSED = (Kind.ALLREDUCE, Kind.BROADCAST)

_ITEMSIZE = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
}


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """One operation of a bucket."""

    request: Request
    sizes: tuple[int, ...] = ()
    """What `agreement.sizes_of` found."""
    num_elements: int = 0


@dataclass(slots=True, eq=False)
class Bucket:
    """Operations of like kind that run as one."""

    request: Request
    """The first of them; the others differ in name and shape only."""
    members: list[Planned] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    """Those of the members."""
    num_elements: int = 0
    cache: Any = None
    """Free for whoever runs the bucket, which comes again with the same operations."""


def fuse(planned: Sequence[Planned], threshold_bytes: int) -> list[Bucket]:
    """Return the buckets of operations that may run now.

    An operation joins the open bucket of its like, past others that do not match; a bucket that
    would exceed the threshold is closed. Buckets run in the order of their first operations.

    Args:
        planned: In the order that all ranks agree on.
        threshold_bytes: Largest bucket of several tensors; 0 fuses nothing.

    Example:
        >>> small = [
        ...     Planned(Request(name, Kind.ALLREDUCE, dtype, (2,)), num_elements=2)
        ...     for name, dtype in [("a", "float32"), ("b", "int64"), ("c", "float32")]
        ... ]
        >>> [[each.request.name for each in bucket.members] for bucket in fuse(small, 16)]
        [['a', 'c'], ['b']]

    Source:
        Tensor fusion with look-ahead, as in ``FuseResponses`` of Horovod 0.28.1's controller.
    """
    buckets: list[Bucket] = []
    opened: dict[Hashable, Bucket] = {}
    for each in planned:
        request = each.request
        like = _like(request)
        bucket = opened.get(like) if like is not None else None
        size_bytes = each.num_elements * _ITEMSIZE.get(request.dtype, 1)
        if bucket is not None:
            held_bytes = bucket.num_elements * _ITEMSIZE.get(request.dtype, 1)
            if held_bytes + size_bytes > threshold_bytes:
                bucket = None
        if bucket is None:
            bucket = Bucket(request)
            buckets.append(bucket)
            if like is not None:
                opened[like] = bucket
        bucket.members.append(each)
        bucket.keys.append(request.key)
        bucket.num_elements += each.num_elements
    return buckets


def elements_of(request: Request) -> int:
    """Return how many elements a rank's tensor has.

    Example:
        >>> elements_of(Request("a", Kind.ALLREDUCE, "float32", (2, 3)))
        6
    """
    return prod(request.shape)


def _like(request: Request) -> Hashable:
    """Return what operations that share a bucket have in common; None: it goes alone."""
    if request.kind not in _FUSED or request.op == ReduceOp.ADASUM:
        return None
    return (
        request.kind,
        request.process_set,
        request.dtype,
        request.device,
        request.op,
        request.prescale,
        request.postscale,
        request.root,
    )
