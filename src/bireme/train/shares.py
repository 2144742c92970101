"""Decides how much each replica's mean gradient counts. Pure; the trainer calls it each step.

Rules: a gradient is a mean over its replica's samples, so the mean over the whole batch is
``sum(b_i / B * g_i)`` with ``B = sum(b_i)``. Without counts every replica counts the same.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeAlias

from bireme.errors import ConfigError

__all__ = ("NumSamples", "check_counts", "shares")

NumSamples: TypeAlias = float | Sequence[float] | None
"""Samples behind the gradients of one step: one count, or one for each replica."""


def check_counts(num_samples: NumSamples, num_replicas: int) -> list[float]:
    """Return one sample count per replica; ones when ``num_samples`` is ``None``.

    Args:
        num_samples: A count >= 0 for each replica (fractions, such as tokens weighted by a
            mask, are allowed), or one number when there is one replica.
        num_replicas: How many replicas there are, >= 1.

    Raises:
        ConfigError: A count is negative, not finite or not a number, or their number differs
            from ``num_replicas``.

    Example:
        >>> check_counts([3, 1], 2), check_counts(None, 2), check_counts(8, 1)
        ([3.0, 1.0], [1.0, 1.0], [8.0])
    """
    if num_samples is None:
        return [1.0] * num_replicas
    given = _plain(num_samples)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        counts: Sequence[object] = given
    elif isinstance(given, Real):
        counts = [given]
    else:
        raise ConfigError(
            f"num_samples must be a number or a list with one number for each replica, "
            f"got {type(given).__name__}"
        )
    if len(counts) != num_replicas:
        raise ConfigError(
            f"num_samples has {len(counts)} counts for {num_replicas} replicas; give one for each"
        )
    return [_checked(count) for count in counts]


def shares(counts: Sequence[float], total: float) -> list[float]:
    """Return ``counts / total``: the weight of each replica's mean gradient.

    Args:
        counts: What :func:`check_counts` returned.
        total: Sum of the counts of every replica of every worker.

    Raises:
        ConfigError: ``total`` is 0: no replica saw a sample.

    Example:
        >>> shares([3.0, 1.0], 4.0)
        [0.75, 0.25]
    """
    if total <= 0:
        raise ConfigError("num_samples is 0 on every replica; skip the step of an empty batch")
    return [count / total for count in counts]


def _plain(given: object) -> Any:
    # Arrays and tensors, also of one element.
    return given.tolist() if hasattr(given, "tolist") else given


def _checked(given: object) -> float:
    count = _plain(given)
    if isinstance(count, bool) or not isinstance(count, Real):
        raise ConfigError(f"num_samples must hold numbers, got {count!r}")
    try:
        value = float(count)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"num_samples must be finite and >= 0, got {value}")
    return value
