"""From the plain parameters that users write to a compressor.

``set_gradient_compression`` and ``Trainer(compression=...)`` call :func:`create`; it is the only
place that knows every type by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real

import torch

from bireme.compress.base import Compressor
from bireme.compress.error_feedback import ErrorFeedback
from bireme.compress.half import Half
from bireme.compress.onebit import OneBit
from bireme.compress.twobit import TwoBit
from bireme.errors import ConfigError

__all__ = ("create",)


@dataclass(frozen=True, slots=True)
class _Parameter:
    read: Callable[[object], float | bool]
    default: float | bool
    wanted: str


@dataclass(frozen=True, slots=True)
class _Type:
    build: Callable[..., Compressor | None]
    parameters: Mapping[str, _Parameter]


def create(params: Mapping[str, object] | Compressor | None) -> Compressor | None:
    """Return the compressor that ``params`` describes, or ``None`` for no compression.

    Args:
        params: A mapping with ``type`` and that type's parameters; numbers may be strings. A
            compressor is returned as it is. ``None`` and ``{"type": "none"}`` switch compression
            off.

            * ``2bit``: ``threshold`` > 0 (default 0.5); see :class:`TwoBit`.
            * ``1bit``: ``threshold`` (default 0.5); see :class:`OneBit`.
            * ``fp16``, ``bf16``: ``error_feedback`` (default false); see :class:`Half`.

    Raises:
        ConfigError: ``type`` is missing or unknown, a parameter is unknown, or a value is bad.
            The message lists the valid ones.

    Example:
        >>> create({"type": "2bit", "threshold": "0.25"})
        ErrorFeedback(quantizer=TwoBit(threshold=0.25))
        >>> create(create({"type": "fp16"}))
        Half(dtype=torch.float16)
        >>> create({"type": "none"}) is None
        True

    Source:
        MXNet 1.9.1, ``KVStore.set_gradient_compression``: same names and defaults. MXNet ignores
        an unknown parameter; here it is an error, because it is a typing mistake.
    """
    if params is None or (isinstance(params, Compressor) and not isinstance(params, type)):
        return params
    if not isinstance(params, Mapping):
        raise ConfigError(
            "compression is a mapping such as {'type': '2bit', 'threshold': 0.5}, a compressor "
            f"such as ErrorFeedback(TwoBit(0.5)), or None; got {params!r}"
        )
    kind = params.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        problem = "has no 'type'" if "type" not in params else f"has unknown type {kind!r}"
        raise ConfigError(f"compression {problem}; valid types: {', '.join(sorted(_TYPES))}")
    given = {name: value for name, value in params.items() if name != "type"}
    return _TYPES[kind].build(**_read(kind, given))


def _read(kind: str, given: Mapping[str, object]) -> dict[str, float | bool]:
    parameters = _TYPES[kind].parameters
    unknown = [name for name in given if name not in parameters]
    if unknown:
        valid = ", ".join(f"{name} (default {p.default})" for name, p in parameters.items())
        raise ConfigError(
            f"compression type {kind!r} has no parameter {unknown[0]!r}; "
            f"valid parameters: {valid or 'none'}"
        )
    values = {name: parameter.default for name, parameter in parameters.items()}
    for name, value in given.items():
        try:
            values[name] = parameters[name].read(value)
        except (TypeError, ValueError, OverflowError):
            wanted = parameters[name].wanted
            raise ConfigError(
                f"compression type {kind!r}: {name} must be {wanted}, got {value!r}"
            ) from None
    return values


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise TypeError
    return float(value)


def _read_bool(value: object) -> bool:
    words: dict[object, bool] = {"true": True, "1": True, "false": False, "0": False}
    text = value.lower() if isinstance(value, str) else value
    if isinstance(text, bool):
        return text
    if text not in words:
        raise ValueError
    return words[text]


def _half(dtype: torch.dtype, error_feedback: bool) -> Compressor:
    cast = Half(dtype)
    return ErrorFeedback(cast) if error_feedback else cast


_THRESHOLD = _Parameter(_read_number, 0.5, "a number")
_ERROR_FEEDBACK = _Parameter(_read_bool, False, "true or false")

_TYPES: Mapping[str, _Type] = {
    "none": _Type(lambda: None, {}),
    "1bit": _Type(lambda threshold: ErrorFeedback(OneBit(threshold)), {"threshold": _THRESHOLD}),
    "2bit": _Type(lambda threshold: ErrorFeedback(TwoBit(threshold)), {"threshold": _THRESHOLD}),
    "fp16": _Type(
        lambda error_feedback: _half(torch.float16, error_feedback),
        {"error_feedback": _ERROR_FEEDBACK},
    ),
    "bf16": _Type(
        lambda error_feedback: _half(torch.bfloat16, error_feedback),
        {"error_feedback": _ERROR_FEEDBACK},
    ),
}
