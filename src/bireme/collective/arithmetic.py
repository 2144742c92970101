"""Factors before and after a reduction, applied as Horovod's users expect. Called by the engines.

Integers are scaled in float64 and truncated, 16-bit floats on the CPU in float32; everything else
in its own type.
"""

import torch
from torch import Tensor

from bireme.types.topology import ReduceOp

__all__ = ("factors", "scale_")

_HALVES = (torch.float16, torch.bfloat16)


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
        tensor.copy_(tensor.to(torch.float64).mul_(factor))
    elif tensor.dtype in _HALVES and tensor.device.type == "cpu":
        tensor.copy_(tensor.to(torch.float32).mul_(factor))
    else:
        tensor.mul_(factor)


def factors(op: ReduceOp, prescale: float, postscale: float, size: int) -> tuple[float, float]:
    """Return what to multiply by before and after a sum over ``size`` ranks.

    Example:
        >>> factors(ReduceOp.AVERAGE, 1.0, 3.0, 4)
        (1.0, 0.75)
    """
    return prescale, postscale / size if op is ReduceOp.AVERAGE else postscale
