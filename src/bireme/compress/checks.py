"""Refuses what a compressor cannot take, before anything has changed.

Each compressor calls these first thing, so that all of them reject the same mistakes with the
same words. Nothing here allocates or changes a tensor, except :func:`take_out`'s new result.
"""

import math
import struct
from collections.abc import Collection
from numbers import Real

import torch

from bireme.compress.base import Payload
from bireme.errors import ConfigError, UnsupportedError

__all__ = (
    "as_float32",
    "check_grad",
    "check_payload",
    "check_state",
    "check_threshold",
    "take_out",
)

_DEVICE_TYPES = ("cpu", "cuda")


def check_grad(grad: torch.Tensor, code: str, dtypes: Collection[torch.dtype], remedy: str) -> None:
    """Refuse a gradient of the wrong layout, dtype or device.

    Args:
        grad: The gradient that a caller passed.
        code: Name of the compression type, for the message.
        dtypes: What that type takes.
        remedy: What to do about a wrong dtype.

    Raises:
        UnsupportedError: The layout is sparse, or dtype or device is not among those taken.
    """
    if grad.layout is not torch.strided:
        raise UnsupportedError(
            f"{code} compresses dense gradients only and this one is {grad.layout}; "
            "call to_dense() on it, or do not compress this key"
        )
    if grad.dtype not in dtypes:
        taken = ", ".join(str(dtype) for dtype in dtypes)
        raise UnsupportedError(f"{code} takes {taken} and this gradient is {grad.dtype}; {remedy}")
    if grad.device.type not in _DEVICE_TYPES:
        raise UnsupportedError(
            f"{code} runs on {' and '.join(_DEVICE_TYPES)} and this gradient is on "
            f"{grad.device}; move it to one of them first"
        )


def check_state(grad: torch.Tensor, state: torch.Tensor | None, code: str) -> torch.Tensor:
    """Return ``state`` as the residual that goes with ``grad``.

    Raises:
        ConfigError: It is missing, belongs to a gradient of another shape, dtype or device, is
            not contiguous, or is ``grad`` itself.
    """
    if state is None:
        raise ConfigError(
            f"{code} needs the state of this key and got None; make it once with init(grad) and "
            "then pass what the previous compress() returned"
        )
    for what in ("shape", "dtype", "device"):
        ours, theirs = getattr(grad, what), getattr(state, what)
        if ours != theirs:
            raise ConfigError(
                f"the gradient's {what} is {_plain(ours)} and its state's is {_plain(theirs)}; "
                f"each key needs the state that {code} made for it with init(grad)"
            )
    if not state.is_contiguous():
        raise ConfigError(f"the state is not contiguous; pass what {code} returned, unchanged")
    if grad.numel() and grad.data_ptr() == state.data_ptr():
        raise ConfigError("the gradient and its state share memory; pass a copy of the gradient")
    return state


def check_payload(
    payload: Payload,
    code: str,
    data_dtype: torch.dtype,
    num_words: int,
    dtypes: Collection[torch.dtype],
) -> None:
    """Refuse a payload that ``code`` did not make for a gradient of the shape it names.

    Args:
        payload: What a caller passed.
        code: Name of the compression type, for the message.
        data_dtype: Dtype of that type's payload data.
        num_words: Elements that the data of this payload's shape must have.
        dtypes: Gradient dtypes that the type takes.

    Raises:
        ConfigError: Dtype, length or layout of the data is wrong.
    """
    data = payload.data
    if data.dtype != data_dtype or payload.dtype not in dtypes:
        raise ConfigError(
            f"this payload holds {data.dtype} made from {payload.dtype}, which is not a {code} "
            "payload; decompress with the compressor that made it"
        )
    if data.dim() != 1 or data.numel() != num_words or not data.is_contiguous():
        raise ConfigError(
            f"a {code} payload of shape {_plain(payload.shape)} is {num_words} contiguous "
            f"elements of {data_dtype}, and this one has shape {_plain(data.shape)} and strides "
            f"{data.stride()}; it is damaged or made by another compressor"
        )


def take_out(
    payload: Payload,
    out: torch.Tensor | None,
    accumulate: bool,
    dtypes: Collection[torch.dtype],
) -> torch.Tensor:
    """Return the tensor to decompress into: ``out`` if it fits, a new one if it is ``None``.

    Args:
        payload: What is to be decompressed; already checked.
        out: The caller's tensor.
        accumulate: Whether the result is added to ``out``.
        dtypes: What ``out`` may be.

    Raises:
        ConfigError: ``out`` does not fit the payload, or is missing though needed.
    """
    if out is None:
        if accumulate:
            raise ConfigError("accumulate=True adds to out, and out is None; pass a tensor")
        return torch.empty(payload.shape, dtype=payload.dtype, device=payload.data.device)
    if out.shape != payload.shape or out.dtype not in dtypes or not out.is_contiguous():
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise ConfigError(
            f"out must be contiguous {wanted} of shape {_plain(payload.shape)}, and it is "
            f"{out.dtype} of shape {_plain(out.shape)} and strides {out.stride()}"
        )
    if out.device != payload.data.device:
        raise ConfigError(
            f"the payload is on {payload.data.device} and out on {out.device}; "
            "move the payload with payload.to(out.device)"
        )
    return out.detach()


def check_threshold(threshold: object, code: str) -> float:
    """Return ``threshold`` as a float.

    Raises:
        ConfigError: It is not a number, is NaN or infinite, or does not fit in float32.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, Real):
        raise ConfigError(f"{code} threshold must be a number, got {threshold!r}")
    try:
        finite = math.isfinite(as_float32(float(threshold)))
    except OverflowError:  # an integer beyond float64
        finite = False
    if not finite:
        raise ConfigError(f"{code} threshold must be finite in float32, got {threshold!r}")
    return float(threshold)


def as_float32(value: float) -> float:
    """Return the float32 number nearest to ``value``; infinite beyond the largest.

    Example:
        >>> as_float32(0.1)
        0.10000000149011612
    """
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, torch.Size) else value
