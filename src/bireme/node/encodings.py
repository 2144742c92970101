"""How compressed gradients are named on the wire: type and parameters in one short string.

A name says all that a server needs to decode, so a server keeps no state about compression, and
workers may switch it on, off or over at any push.
"""

from functools import lru_cache

import torch

from bireme.compress.base import Compressor
from bireme.compress.factory import create
from bireme.errors import ConfigError

__all__ = ("HALF", "RAW", "SUM", "decoder", "element_type", "encoding_of")

RAW = "raw"
"""The slot's own element type, uncompressed."""

SUM = "sum"
"""Sums of raw values that a relay has made, in the type in which the server sums them."""

HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""The encodings that are casts, and their element types. Sums of them are answered in them."""


def encoding_of(compressor: Compressor) -> str:
    """Return the wire's name for what ``compressor`` produces.

    Example:
        >>> encoding_of(create({"type": "2bit", "threshold": 0.25}))
        '2bit:0.25'
    """
    params = compressor.to_params()
    kind = str(params["type"])
    return f"{kind}:{params['threshold']}" if "threshold" in params else kind


@lru_cache(maxsize=64)
def decoder(encoding: str) -> Compressor:
    """Return what decodes payloads named ``encoding``.

    Raises:
        ConfigError: No compressor has that name, or it cannot have that parameter.

    Example:
        >>> decoder("2bit:0.25").to_params()["threshold"]
        0.25
    """
    kind, _, threshold = encoding.partition(":")
    compressor = create({"type": kind} | ({"threshold": threshold} if threshold else {}))
    if compressor is None:
        raise ConfigError(f"{encoding!r} names no compressor")
    return compressor


def element_type(encoding: str) -> torch.dtype:
    """Return the element type of the payloads named ``encoding``.

    Example:
        >>> element_type("bf16"), element_type("1bit:0.5")
        (torch.bfloat16, torch.uint8)
    """
    return HALF.get(encoding.partition(":")[0], torch.uint8)
