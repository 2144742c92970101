"""The reducer interface: sum some tensors, write the sum into others.

A push is a sum with one target (the stored value), a pull a sum of one value with many targets,
and a pushpull both at once; so stores need this one verb, and a reducer can fuse all three.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from bireme.kvstore.base import Key

__all__ = ("Reducer", "Sum")


@dataclass(slots=True)
class Sum:
    """One sum to compute.

    All tensors are dense and have one shape and dtype; they may lie on any devices and need not
    be contiguous.
    """

    key: Key
    """Whose values these are; a reducer with memory keeps it by key."""

    values: Sequence[torch.Tensor]
    """What to add, at least one; not changed, unless also among ``outs``."""

    outs: Sequence[torch.Tensor]
    """What to overwrite with the sum, at least one. The first is where the sum is computed."""


@runtime_checkable
class Reducer(Protocol):
    """Adds the values of keys.

    Guarantees:
        The sum is ``((v0 + v1) + v2) + ...`` in the order given, so equal input gives equal bits.
        float16 and bfloat16 are summed in float32 and rounded once. A tensor of ``outs`` may be
        one of the same job's ``values``; apart from that, no target may overlap any other tensor
        of the call. Calls from several threads are safe when their tensors are disjoint.
    """

    def check(self, key: Key, values: Sequence[torch.Tensor]) -> None:
        """Refuse values that :meth:`run` could not sum; changes nothing.

        Raises:
            UnsupportedError: The reducer cannot take this dtype.
            ConfigError: The values do not fit what the reducer remembers of the key.
        """

    def run(self, jobs: Sequence[Sum]) -> None:
        """Carry out every job; on CUDA, in the order of each device's current stream."""

    def forget(self) -> None:
        """Drop whatever is remembered of keys and free it."""
