"""Splitting a batch over contexts.

Called by training scripts with a loop of their own, and by :class:`bireme.Module`.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence, Sized
from typing import TypeAlias

import numpy as np
import torch

from bireme.errors import ConfigError
from bireme.train import nested, workload
from bireme.types import Context

__all__ = (
    "ContextLike",
    "as_context",
    "device_of",
    "move",
    "split_and_load",
    "split_by_sizes",
    "split_data",
)

ContextLike: TypeAlias = Context | str | torch.device
"""A context, its name (``"gpu(0)"``, ``"cuda:0"``), or a torch device."""


def split_data(
    data: nested.Nested,
    num_slice: int,
    batch_axis: int = 0,
    even_split: bool = True,
    work_load_list: Sequence[float] | None = None,
) -> list[nested.Nested]:
    """Cut a batch into ``num_slice`` slices along ``batch_axis``.

    Args:
        data: A tensor, a numpy array, or tuples, namedtuples, lists and dicts of these; each
            leaf is split alike, and ``None`` stays ``None``.
        num_slice: Number of slices, >= 1.
        batch_axis: The axis to cut; negative counts from the end.
        even_split: Insist on slices of one size. ``False`` lets them differ: 10 over 4 is
            3, 3, 2, 2, and a small batch leaves the last slices empty.
        work_load_list: One number per slice, in whose proportion to split; it decides alone,
            whatever ``even_split`` says. Sizes are ``round(load * batch / total)`` and the last
            slice takes the remainder; see :func:`bireme.train.workload.work_load_sizes`.

    Raises:
        ConfigError: The batch does not divide evenly, leaves differ in batch size, or an
            argument is out of range.

    Guarantees:
        Slices are views of ``data``: nothing is copied.

    Example:
        >>> [len(part) for part in split_data(torch.arange(10), 4, even_split=False)]
        [3, 3, 2, 2]
        >>> [len(part) for part in split_data(torch.arange(10), 3, work_load_list=[1, 2, 3])]
        [2, 3, 5]

    Source:
        MXNet 1.9 ``gluon.utils.split_data``; the work loads are those of its Module.
    """
    batch_size = nested.batch_size_of(data, batch_axis)
    if work_load_list is not None:
        if not isinstance(work_load_list, Sized) or len(work_load_list) != num_slice:
            raise ConfigError(
                f"work_load_list must hold one number per slice ({num_slice}), "
                f"got {work_load_list!r}"
            )
        sizes = workload.work_load_sizes(batch_size, work_load_list)
    else:
        sizes = workload.even_sizes(batch_size, num_slice)
        if even_split and batch_size % num_slice:
            raise ConfigError(
                f"a batch of {batch_size} does not split evenly into {num_slice} slices; use a "
                f"batch size that is a multiple of {num_slice}, or even_split=False"
            )
    return split_by_sizes(data, sizes, batch_axis)


def split_by_sizes(
    data: nested.Nested, sizes: Sequence[int], batch_axis: int = 0
) -> list[nested.Nested]:
    """Cut a batch into slices of the given ``sizes``, which add up to its batch size.

    Example:
        >>> split_by_sizes([torch.arange(3)], [1, 2])
        [[tensor([0])], [tensor([1, 2])]]
    """

    def cut(leaf: nested.Leaf, start: int, size: int) -> nested.Leaf:
        if isinstance(leaf, torch.Tensor):
            return leaf.narrow(batch_axis, start, size)
        where = [slice(None)] * leaf.ndim
        where[batch_axis] = slice(start, start + size)
        return leaf[tuple(where)]

    starts = [0, *itertools.accumulate(sizes)]
    return [
        nested.map_leaves(functools.partial(cut, start=start, size=size), data)
        for start, size in zip(starts, sizes, strict=False)
    ]


def split_and_load(
    data: nested.Nested,
    ctx_list: Sequence[ContextLike],
    batch_axis: int = 0,
    even_split: bool = True,
    work_load_list: Sequence[float] | None = None,
) -> list[nested.Nested]:
    """Cut a batch into one slice per context and move each slice there.

    Args:
        data: As for :func:`split_data`; numpy arrays become tensors.
        ctx_list: The contexts: ``bireme.gpu(0)``, ``"gpu(0)"`` or ``torch.device("cuda:0")``.
        batch_axis: As for :func:`split_data`.
        even_split: As for :func:`split_data`.
        work_load_list: As for :func:`split_data`, one number per context.

    Raises:
        ConfigError: As :func:`split_data`; or ``ctx_list`` is empty or names no such context.

    Guarantees:
        A slice that is on its context already is a view of ``data``, not a copy.

    Example:
        >>> split_and_load(np.arange(4.0), ["cpu(0)", "cpu(1)"])
        [tensor([0., 1.], dtype=torch.float64), tensor([2., 3.], dtype=torch.float64)]

    Source:
        MXNet 1.9 ``gluon.utils.split_and_load``.
    """
    if isinstance(ctx_list, str) or not isinstance(ctx_list, Iterable):
        raise ConfigError(f"ctx_list must be a list of contexts, got {ctx_list!r}; write [...]")
    devices = [device_of(as_context(context)) for context in ctx_list]
    if not devices:
        raise ConfigError("ctx_list is empty; name one context at least")
    slices = split_data(data, len(devices), batch_axis, even_split, work_load_list)
    return [move(part, device) for part, device in zip(slices, devices, strict=True)]


def as_context(context: ContextLike) -> Context:
    """Return ``context`` as a :class:`bireme.Context`.

    Raises:
        ConfigError: It is none, or a device of another kind than CPU and CUDA.

    Example:
        >>> as_context("cuda:1"), as_context(torch.device("cpu"))
        (gpu(1), cpu(0))
    """
    if isinstance(context, Context):
        return context
    if isinstance(context, str | torch.device):
        return Context.parse(str(context))
    raise ConfigError(f"expected a context such as bireme.gpu(0) or 'gpu(0)', got {context!r}")


def move(data: nested.Nested, device: torch.device) -> nested.Nested:
    """Return ``data`` with each leaf as a tensor on ``device``.

    Raises:
        ConfigError: An array's dtype is none of torch's.
    """

    def load(leaf: nested.Leaf) -> torch.Tensor:
        if isinstance(leaf, torch.Tensor):
            return leaf.to(device, non_blocking=True)
        try:
            # torch warns about read-only memory, which it cannot protect from writes.
            owned = leaf if leaf.flags.writeable else leaf.copy()
            return torch.from_numpy(np.ascontiguousarray(owned)).to(device, non_blocking=True)
        except TypeError as error:
            raise ConfigError(f"torch has no dtype for an array of {leaf.dtype}") from error

    return nested.map_leaves(load, data)


def device_of(context: Context) -> torch.device:
    """Return the torch device that ``context`` names.

    Raises:
        ConfigError: This machine has no such GPU.

    Example:
        >>> device_of(Context("cpu", 1))
        device(type='cpu')
    """
    if context.kind == "gpu" and context.index >= torch.cuda.device_count():
        raise ConfigError(
            f"{context} does not exist: torch sees {torch.cuda.device_count()} CUDA devices here"
        )
    return torch.device(context.torch_name)
