"""Whether tensors share memory, so that a fused pushpull would read what it has written."""

from collections.abc import Sequence

import numpy as np
import torch

__all__ = ("are_disjoint",)


def are_disjoint(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether no two of ``tensors`` share a byte; ``False`` when that is not cheap to see.

    Args:
        tensors: Dense tensors on any devices, which have one address space.

    Example:
        >>> whole = torch.zeros(4)
        >>> are_disjoint([whole[:2], whole[2:]]), are_disjoint([whole[:3], whole[2:]])
        (True, False)
    """
    if not all(tensor.is_contiguous() for tensor in tensors):
        return False
    starts = np.array([tensor.data_ptr() for tensor in tensors], np.int64)
    ends = starts + np.array([tensor.nbytes for tensor in tensors], np.int64)
    order = np.argsort(starts, kind="stable")
    return bool((starts[order][1:] >= ends[order][:-1]).all())
