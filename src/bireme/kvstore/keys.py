"""Turns the ``key`` and ``value`` arguments of a store's methods into one list of tensors per key.

Pure: nothing here knows what a store holds. Every store calls it first, so that a call that is
wrong in form is refused before anything changes.
"""

from collections.abc import Sequence
from operator import index

import torch

from bireme.errors import ConfigError
from bireme.kvstore.base import Key, Values

__all__ = ("group", "key_kind", "to_keys")


def to_keys(key: Key | Sequence[Key]) -> tuple[list[Key], bool]:
    """Return the keys of a call and whether they came as a list.

    Args:
        key: An integer, a string, or a list, tuple or range that holds one of the two kinds.

    Raises:
        ConfigError: A key is of another type (a bool is no integer here), or the kinds are
            mixed.

    Example:
        >>> to_keys("weight"), to_keys([3, 5])
        ((['weight'], False), ([3, 5], True))
    """
    if isinstance(key, (list, tuple, range)):
        keys = [_checked(each) for each in key]
        if keys:
            kind = type(keys[0])
            for each in keys:
                if type(each) is not kind:
                    raise ConfigError(
                        f"integer and string keys are mixed in one call ({keys[0]!r} and "
                        f"{each!r}); use one kind in a store"
                    )
        return keys, True
    return [_checked(key)], False


def key_kind(keys: Sequence[Key], kind: type[int] | type[str] | None) -> type[int] | type[str]:
    """Return the kind of ``keys``, which must be the store's.

    Args:
        keys: At least one key, all of one kind.
        kind: ``int`` or ``str`` once the store has keys, else ``None``.

    Raises:
        ConfigError: ``keys`` are of the other kind.

    Example:
        >>> key_kind(["weight"], None)
        <class 'str'>
    """
    found = str if isinstance(keys[0], str) else int
    if kind is not None and found is not kind:
        names = {int: "integer", str: "string"}
        raise ConfigError(
            f"key {keys[0]!r} is {names[found]}, but this store was initialised with "
            f"{names[kind]} keys; a store takes one kind only"
        )
    return found


def group(
    keys: Sequence[Key], is_list: bool, value: Values, what: str = "value"
) -> dict[Key, list[torch.Tensor]]:
    """Return the tensors of each key, in order; a repeated key collects all of its tensors.

    Args:
        keys: What :func:`to_keys` returned.
        is_list: Whether ``value`` must have one item for each key.
        value: The argument as the caller gave it.
        what: Its name, for messages.

    Raises:
        ConfigError: The number of items is not the number of keys, an item is empty, or
            something is not a tensor.

    Example:
        >>> one = torch.ones(())
        >>> [len(tensors) for tensors in group([3, 5, 3], True, [one, [one, one], one]).values()]
        [2, 2]
    """
    if not is_list:
        return {keys[0]: _tensors(keys[0], value, what)}
    if not isinstance(value, (list, tuple)) or len(value) != len(keys):
        given = f"{len(value)} items" if isinstance(value, (list, tuple)) else _described(value)
        raise ConfigError(
            f"{what} must be a list with one item for each of the {len(keys)} keys, got {given}"
        )
    groups: dict[Key, list[torch.Tensor]] = {}
    for key, item in zip(keys, value, strict=True):
        tensors = _tensors(key, item, what)
        if key in groups:
            groups[key] += tensors
        else:
            groups[key] = tensors
    return groups


def _checked(key: object) -> Key:
    if type(key) is int or type(key) is str:
        return key
    if isinstance(key, str):
        return str(key)
    try:
        if isinstance(key, (bool, torch.Tensor)):
            raise TypeError
        return index(key)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(
            f"a key must be an integer or a string, got {key!r} of type {type(key).__name__}"
        ) from None


def _tensors(key: Key, item: object, what: str) -> list[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        return [item]
    if not isinstance(item, (list, tuple)):
        raise ConfigError(
            f"{what} of key {key!r} must be a tensor or a list of tensors, got {_described(item)}"
        )
    if not item:
        raise ConfigError(f"{what} of key {key!r} is an empty list; give one tensor per device")
    for each in item:
        if not isinstance(each, torch.Tensor):
            raise ConfigError(
                f"{what} of key {key!r} must hold only tensors, got {_described(each)}"
            )
    return list(item)


def _described(item: object) -> str:
    if isinstance(item, torch.Tensor):
        return f"one tensor of shape {tuple(item.shape)}"
    return f"{item!r:.60} of type {type(item).__name__}"
