"""Nested batches: tensors and arrays inside tuples, namedtuples, lists and dicts.

Called by :mod:`bireme.train.split` and :mod:`bireme.train.replicas`, which treat each leaf alike.
A leaf is a tensor or a numpy array; ``None`` stands for an optional input and stays ``None``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from bireme.errors import ConfigError

__all__ = ("Leaf", "Nested", "batch_size_of", "leaves", "map_leaves", "merge")

Leaf: TypeAlias = torch.Tensor | np.ndarray[Any, Any]
"""What a nested batch is made of."""

Nested: TypeAlias = Any
"""A leaf, ``None``, or a tuple, namedtuple, list or mapping of nested values."""


def leaves(data: Nested, path: str = "data") -> Iterator[tuple[str, Leaf]]:
    """Yield each leaf of ``data`` with a path that says where it is, such as ``data['x'][0]``.

    Raises:
        ConfigError: Something in ``data`` is neither a leaf, ``None`` nor a container.

    Example:
        >>> [path for path, _ in leaves({"x": (torch.ones(2), None)})]
        ["data['x'][0]"]
    """
    if isinstance(data, torch.Tensor | np.ndarray):
        yield path, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from leaves(value, f"{path}[{key!r}]")
    elif isinstance(data, tuple | list):
        for index, value in enumerate(data):
            yield from leaves(value, f"{path}[{index}]")
    elif data is not None:
        raise ConfigError(
            f"{path} is a {type(data).__name__} ({data!r:.60}); a batch holds tensors, numpy "
            "arrays, None, and tuples, lists and dicts of these"
        )


def map_leaves(function: Callable[[Leaf], Nested], data: Nested) -> Nested:
    """Return ``data`` with ``function`` applied to each leaf, in the same containers.

    Example:
        >>> map_leaves(len, {"x": np.zeros(3), "y": [np.ones(2), None]})
        {'x': 3, 'y': [2, None]}
    """
    return _rebuild([data], lambda parts: function(parts[0]))


def merge(parts: Sequence[Nested], function: Callable[[list[torch.Tensor]], Nested]) -> Nested:
    """Return one nested value whose leaves are ``function`` of the parts' leaves.

    Args:
        parts: Values of one structure, one at least.
        function: Joins the leaves that stand at one place, such as ``torch.cat``.

    Raises:
        ConfigError: The parts differ in structure, or a leaf is not a tensor.

    Example:
        >>> merge([(torch.ones(1),), (torch.zeros(2),)], torch.cat)
        (tensor([1., 0., 0.]),)
    """

    def join(tensors: list[Nested]) -> Nested:
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                raise ConfigError(f"expected tensors only, got a {type(tensor).__name__}")
        return function(tensors)

    return _rebuild(list(parts), join)


def _rebuild(parts: list[Nested], leaf: Callable[[list[Nested]], Nested]) -> Nested:
    """Walk ``parts`` side by side and build one value in the containers of the first."""
    first = parts[0]
    if first is None:
        return None
    if not isinstance(first, Mapping | tuple | list):
        return leaf(parts)
    if any(type(part) is not type(first) or len(part) != len(first) for part in parts):
        raise ConfigError(f"the parts differ in structure: {[type(p).__name__ for p in parts]}")
    if isinstance(first, Mapping):
        items = {key: _rebuild([part[key] for part in parts], leaf) for key in first}
        return items if type(first) is dict else _like(first, items)
    values = [_rebuild(list(column), leaf) for column in zip(*parts, strict=True)]
    if hasattr(first, "_fields"):
        return type(first)(*values)
    return values if type(first) is list else _like(first, values)


def _like(first: Any, content: Any) -> Nested:
    """Return ``content`` in the container type of ``first``."""
    if type(first) is tuple:
        return tuple(content)
    try:
        return type(first)(content)
    except TypeError as error:
        raise ConfigError(
            f"cannot rebuild a {type(first).__name__}; use tuples, namedtuples, lists and dicts"
        ) from error


def batch_size_of(data: Nested, batch_axis: int = 0, name: str = "data") -> int:
    """Return the number of samples that every leaf of ``data`` holds.

    Args:
        data: A nested batch with one leaf at least.
        batch_axis: The axis that counts samples; negative counts from the end.
        name: What errors call ``data``.

    Raises:
        ConfigError: There is no leaf, a leaf lacks the axis, or the leaves disagree.

    Example:
        >>> batch_size_of((torch.ones(3, 2), np.zeros(3)))
        3
    """
    if isinstance(batch_axis, bool) or not isinstance(batch_axis, int):
        raise ConfigError(f"batch_axis must be an integer, got {batch_axis!r}")
    found: dict[str, int] = {}
    for path, leaf in leaves(data, name):
        if not -leaf.ndim <= batch_axis < leaf.ndim:
            raise ConfigError(f"{path} of shape {tuple(leaf.shape)} has no batch axis {batch_axis}")
        found[path] = leaf.shape[batch_axis]
    if not found:
        raise ConfigError("the batch holds no tensor and no array")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{path}: {size}" for path, size in found.items())
        raise ConfigError(f"the parts of one batch differ in batch size ({listed})")
    return next(iter(found.values()))
