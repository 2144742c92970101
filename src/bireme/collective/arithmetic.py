"""Factors before and after a reduction, applied as Horovod's users expect. Called by the engines.

Integers are scaled in float64 and truncated, 16-bit floats on the CPU in float32; everything else
in its own type.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bireme.types.topology import ReduceOp

__all__ = ("factors", "row_counts", "scale_")

_HALVES = (torch.float16, torch.bfloat16)
_PART = 1 << 20
_MOST_INT32 = 2**31 - 1


def scale_(tensor: Tensor, factor: float) -> None:
    """Multiply ``tensor`` by ``factor`` in place.

    Example:
        >>> tensor = torch.tensor([5, -5])
        >>> scale_(tensor, 0.5)
        >>> tensor
        tensor([ 2, -2])
    """
    if factor == 1.0:
        return
    if not (tensor.is_floating_point() or tensor.is_complex()):
        wide = torch.float64
    elif tensor.dtype in _HALVES and tensor.device.type == "cpu":
        wide = torch.float32
    else:
        tensor.mul_(factor)
        return
    # In parts: a copy of the whole would take up to eight times its memory.
    parts = torch.split(tensor.view(-1), _PART) if tensor.is_contiguous() else (tensor,)
    for part in parts:
        part.copy_(part.to(wide).mul_(factor))


def factors(op: ReduceOp, prescale: float, postscale: float, size: int) -> tuple[float, float]:
    """Return what to multiply by before and after a sum over ``size`` ranks.

    Example:
        >>> factors(ReduceOp.AVERAGE, 1.0, 3.0, 4)
        (1.0, 0.75)
    """
    return prescale, postscale / size if op is ReduceOp.AVERAGE else postscale


def row_counts(rows: Sequence[int], device: torch.device | None) -> Tensor:
    """Return counts of rows as Horovod's int32, or int64 where one is larger than that.

    Example:
        >>> row_counts([1, 2], None).dtype, row_counts([1, 2**31], None).dtype
        (torch.int32, torch.int64)
    """
    dtype = torch.int32 if max(rows, default=0) <= _MOST_INT32 else torch.int64
    return torch.tensor(rows, dtype=dtype, device=device)
