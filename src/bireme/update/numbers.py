"""What a hyper-parameter may be: a plain value that survives the way to a server unchanged.

Specs call it for what users give them, and servers for what they are sent.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch

from bireme.errors import ConfigError
from bireme.types.keys import Key

__all__ = ("LEAST_RATE", "Plain", "factors", "is_plain", "number", "to_plain")

Plain: TypeAlias = bool | int | float | str | tuple[float | None, ...] | None
"""What a hyper-parameter may be."""

LEAST_RATE = -1e-12
"""The least learning rate: schedulers that end at 0, such as LinearLR, may round below it."""

_LARGEST = 1 << 63
_LONGEST = 64


def to_plain(name: str, value: object) -> Plain:
    """Return ``value`` as a plain one: tensors of one element and NumPy's numbers become Python's.

    Args:
        name: Of the hyper-parameter, for the message.
        value: A finite number, a string, ``None``, a tensor of one element, or a short sequence of
            numbers.

    Raises:
        ConfigError: It is something else.

    Example:
        >>> to_plain("betas", [0.9, torch.tensor(0.5)])
        (0.9, 0.5)
    """
    if isinstance(value, (tuple, list)):
        return _tuple(name, value)
    return _scalar(name, value)


def is_plain(value: object) -> bool:
    """Return whether :func:`to_plain` takes ``value``.

    Example:
        >>> is_plain((0.9, None)), is_plain(print)
        (True, False)
    """
    try:
        to_plain("", value)
    except ConfigError:
        return False
    return True


def number(what: str, value: object) -> float:
    """Return ``value`` as a float.

    Raises:
        ConfigError: It is no finite number.
    """
    found = _scalar(what, value)
    if found is None or isinstance(found, (bool, str)):
        raise ConfigError(f"{what} must be a finite number, got {value!r:.60}")
    return float(found)


def factors(what: str, given: Mapping[Key, float]) -> dict[Key, float]:
    """Return a copy of factors by key.

    Raises:
        ConfigError: One is no finite number >= 0, or this is no mapping.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} must map keys to factors, got {given!r:.60}")
    found = {key: number(f"{what} of key {key!r}", factor) for key, factor in given.items()}
    for key, factor in found.items():
        if factor < 0:
            raise ConfigError(f"{what} of key {key!r} must be >= 0, got {factor!r}")
    return found


def _tuple(name: str, value: Sequence[object]) -> tuple[float | None, ...]:
    if len(value) > _LONGEST:
        raise ConfigError(f"{name} must have at most {_LONGEST} numbers, got {len(value)}")
    found = []
    for each in value:
        plain = _scalar(name, each)
        if isinstance(plain, str):
            raise ConfigError(f"{name} must be a number or a tuple of numbers, got {value!r:.60}")
        found.append(plain)
    return tuple(found)


def _scalar(name: str, value: object) -> bool | int | float | str | None:
    # Most are: asking the abstract classes below takes ten times as long.
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.device.type == "meta":
            raise ConfigError(
                f"{name} must be one number, got a tensor of shape {tuple(value.shape)}"
            )
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= _LONGEST:
        return value
    if isinstance(value, numbers.Integral) and abs(int(value)) < _LARGEST:
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        found = float(value)
        if math.isfinite(found):
            return found
        raise ConfigError(f"{name} must be finite, got {found!r}")
    raise ConfigError(
        f"{name} must be a number below 2**63, a short string or a tuple of numbers, got "
        f"{value!r:.60}"
    )
