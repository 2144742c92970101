"""Settings classes and the environment: one variable per field, read, written and checked alike.

Called by the settings classes. A field names its variable and its bounds in its metadata; its
type says how the text is read.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from bireme.errors import ConfigError

__all__ = ("Variable", "check_fields", "env", "read_fields", "variables", "write_fields")

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})
_SIZE = re.compile(r"(?P<number>\d+)\s*(?:(?P<unit>[kmg])(?:i?b)?)?", re.IGNORECASE)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """How one field is spelled in the environment, and which values it takes."""

    name: str
    low: float | None = None
    """Least value."""
    above: float | None = None
    """Every value is greater than this."""
    high: float | None = None
    """Greatest value."""

    def bounds(self) -> str:
        """Return the bounds in words, such as ``>= 0``; empty when there are none."""
        parts = []
        if self.low is not None:
            parts.append(f">= {self.low}")
        if self.above is not None:
            parts.append(f"> {self.above}")
        if self.high is not None:
            parts.append(f"<= {self.high}")
        return " and ".join(parts)

    def allows(self, value: float) -> bool:
        """Return whether ``value`` is finite and within the bounds."""
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
        )


def env(
    name: str, *, low: float | None = None, above: float | None = None, high: float | None = None
) -> dict[str, Variable]:
    """Return the metadata of a field that the variable ``name`` sets."""
    return {"variable": Variable(name=name, low=low, above=above, high=high)}


def variables(cls: type[Any]) -> dict[str, Variable]:
    """Return the variable of each field of a settings class, by field name."""
    return {
        field.name: field.metadata["variable"]
        for field in dataclasses.fields(cls)
        if "variable" in field.metadata
    }


def check_fields(settings: Any) -> None:
    """Refuse a settings object with a value of a wrong type or out of bounds.

    Raises:
        ConfigError: Names the field, what it takes, and the value.
    """
    hints = typing.get_type_hints(type(settings))
    for name, variable in variables(type(settings)).items():
        value = getattr(settings, name)
        kind, optional = _kind(hints[name])
        if value is None and optional:
            continue
        if not _is_a(value, kind):
            raise ConfigError(f"{name} must be {_describe(kind)}, got {value!r}")
        if isinstance(value, int | float) and not variable.allows(value):
            raise ConfigError(f"{name} must be {variable.bounds() or 'finite'}, got {value!r}")


def read_fields(cls: type[Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of ``cls`` that ``mapping`` sets; an empty string sets none.

    Raises:
        ConfigError: A text cannot be read; names the variable, what it takes, and the text.
    """
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, variable in variables(cls).items():
        kind, _ = _kind(hints[name])
        text = mapping.get(variable.name, "")
        if kind is not str:
            text = text.strip()
        if not text:
            continue
        value = _parse(text, kind, is_size=name.endswith("_bytes"))
        if value is None:
            raise ConfigError(f"{variable.name} must be {_describe(kind)}, got {text!r}")
        if isinstance(value, int | float) and not variable.allows(value):
            raise ConfigError(
                f"{variable.name} must be {variable.bounds() or 'finite'}, got {text!r}"
            )
        values[name] = value
    return values


def write_fields(settings: Any) -> dict[str, str]:
    """Return the variables that ``read_fields`` reads ``settings`` from; none for ``None``."""
    texts: dict[str, str] = {}
    for name, variable in variables(type(settings)).items():
        value = getattr(settings, name)
        if value is None or value == "":
            continue
        texts[variable.name] = str(int(value)) if isinstance(value, bool) else str(value)
    return texts


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return the type of a field without ``None``, and whether ``None`` is allowed."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (kind,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
        return kind, True
    return hint, False


def _is_a(value: object, kind: Any) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _describe(kind: Any) -> str:
    if issubclass(kind, StrEnum):
        return "one of " + ", ".join(repr(str(choice)) for choice in kind)
    return {bool: "0 or 1", int: "an integer", float: "a number", str: "a string"}[kind]


def _parse(text: str, kind: Any, *, is_size: bool) -> Any:
    """Return the value that ``text`` stands for, or ``None`` when it stands for none."""
    if issubclass(kind, StrEnum):
        return next((choice for choice in kind if choice == text.lower()), None)
    if kind is int and is_size:
        return _parse_size(text)
    return _PARSERS[kind](text)


def _parse_size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    return int(match["number"]) << _SHIFT[(match["unit"] or "").lower()]


def _parse_int(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) else None


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parse_bool(text: str) -> bool | None:
    word = text.lower()
    if word in _YES:
        return True
    return False if word in _NO else None


_PARSERS: dict[Any, Callable[[str], object]] = {
    int: _parse_int,
    float: _parse_float,
    bool: _parse_bool,
    str: str,
}
