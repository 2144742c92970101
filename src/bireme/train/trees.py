"""Nested plain values with tensors, as JSON and named tensors: what a checkpoint holds.

Called by :mod:`bireme.train.checkpoint` for the state of optimizers and schedulers. Values are
``None``, booleans, numbers, strings and tensors in lists, tuples, dicts with keys of these kinds,
and ``collections.Counter`` (torch's schedulers use it). Nothing that is read can become code.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch

from bireme.errors import DataError, UnsupportedError

__all__ = ("Json", "Tree", "cpu_copy", "decode", "encode")

Tree: TypeAlias = Any
"""A nested value as the module describes."""

Json: TypeAlias = Any
"""What ``json.dumps`` takes: containers are objects with one entry that names their kind."""


def encode(tree: Tree, tensors: dict[str, torch.Tensor], path: str = "state") -> Json:
    """Return ``tree`` as JSON, and put its tensors into ``tensors``.

    Args:
        tree: The value.
        tensors: Filled with CPU copies, under names that say where in ``tree`` they stood.
        path: Where ``tree`` stands, for those names and for errors.

    Raises:
        UnsupportedError: ``tree`` holds something else, such as a function.

    Example:
        >>> tensors = {}
        >>> encode({0: (1.5, torch.ones(1))}, tensors, "state")
        {'dict': [[0, {'tuple': [1.5, {'tensor': 'state.0.1'}]}]]}
        >>> list(tensors)
        ['state.0.1']
    """
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, torch.Tensor):
        name = path if path not in tensors else f"{path}#{len(tensors)}"
        tensors[name] = cpu_copy(tree, path)
        return {"tensor": name}
    if isinstance(tree, Mapping):
        kind = "counter" if isinstance(tree, Counter) else "dict"
        pairs = tree.items()
        return {kind: [[_key(k, path), encode(v, tensors, f"{path}.{k}")] for k, v in pairs]}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [encode(v, tensors, f"{path}.{i}") for i, v in enumerate(tree)]}
    raise UnsupportedError(
        f"{path} is a {type(tree).__name__}, which a checkpoint cannot hold; it holds tensors, "
        "numbers, strings, lists, tuples and dicts"
    )


def decode(json: Json, tensors: Mapping[str, torch.Tensor]) -> Tree:
    """Return the value that :func:`encode` was given.

    Raises:
        DataError: ``json`` is none of its results, or a tensor is missing.

    Example:
        >>> decode({"dict": [[0, {"tuple": [1.5]}]]}, {})
        {0: (1.5,)}
    """
    if json is None or isinstance(json, bool | int | float | str):
        return json
    if not isinstance(json, dict) or len(json) != 1:
        raise DataError(f"expected an object with one entry, got {json!r:.80}")
    ((kind, content),) = json.items()
    if kind == "tensor":
        if content not in tensors:
            raise DataError(f"tensor {content!r} is missing")
        return tensors[content]
    if not isinstance(content, list):
        raise DataError(f"expected a list under {kind!r}, got {content!r:.80}")
    if kind in ("dict", "counter"):
        items = {key: decode(value, tensors) for key, value in _pairs(content)}
        return items if kind == "dict" else Counter(items)
    if kind in ("list", "tuple"):
        values = [decode(value, tensors) for value in content]
        return values if kind == "list" else tuple(values)
    raise DataError(f"unknown kind of value {kind!r}")


def cpu_copy(tensor: torch.Tensor, path: str) -> torch.Tensor:
    """Return a contiguous copy of ``tensor`` on the CPU, which shares memory with nothing.

    Raises:
        UnsupportedError: It is sparse or holds no data; ``path`` says where it stood.
    """
    if tensor.layout is not torch.strided or tensor.is_meta:
        what = "on the meta device" if tensor.is_meta else f"of layout {tensor.layout}"
        raise UnsupportedError(f"{path} is a tensor {what}, which a checkpoint cannot hold")
    return tensor.detach().to("cpu", copy=True).contiguous()


def _key(key: object, path: str) -> Json:
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise UnsupportedError(f"{path} has the key {key!r:.80}; a checkpoint needs plain keys")


def _pairs(content: list[Json]) -> Iterator[tuple[Json, Json]]:
    for pair in content:
        if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], list | dict):
            raise DataError(f"expected a pair of key and value, got {pair!r:.80}")
        yield pair[0], pair[1]
