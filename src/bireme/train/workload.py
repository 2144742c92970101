"""How many samples of a batch each context gets. Pure: numbers in, numbers out.

Called by :func:`bireme.split_data` and by :class:`bireme.Module`. The rules:

1. *Even sizes* differ by one at most, the larger ones first: 10 over 4 is 3, 3, 2, 2.
2. *Sizes by work load* are ``round(load * batch / total)``, and the last slice takes what
   remains: loads 1, 1, 1 split 10 into 3, 3, 4. Where that would make a slice negative, or leave
   a positive load without samples although there are enough for all, the largest remainder
   decides instead, with one sample each at least.
3. *Balanced sizes* follow measured speeds: :class:`bireme.train.balancer.Balancer`.
"""

import math
import numbers
from collections.abc import Sequence
from typing import Protocol

from bireme.errors import ConfigError

__all__ = (
    "EvenShares",
    "FixedShares",
    "Shares",
    "check_loads",
    "even_sizes",
    "proportional_sizes",
    "work_load_sizes",
)


class Shares(Protocol):
    """Who gets how much of each batch."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of each batch that each context gets; they add up to 1."""

    @property
    def measures(self) -> bool:
        """Whether :meth:`record` wants true times."""

    def sizes(self, batch_size: int) -> list[int]:
        """Return the samples of each context in a batch of ``batch_size``."""

    def record(self, sizes: Sequence[int], seconds: Sequence[float]) -> None:
        """Learn from one step: the samples of each context, and its time in seconds."""


def even_sizes(batch_size: int, num_slice: int) -> list[int]:
    """Return ``num_slice`` sizes that differ by one at most, the larger ones first.

    Args:
        batch_size: Samples to share out, >= 0.
        num_slice: Number of slices, >= 1.

    Raises:
        ConfigError: An argument is out of range.

    Example:
        >>> even_sizes(10, 4)
        [3, 3, 2, 2]
    """
    _check_counts(batch_size, num_slice)
    base, extra = divmod(batch_size, num_slice)
    return [base + (index < extra) for index in range(num_slice)]


def work_load_sizes(batch_size: int, loads: Sequence[float]) -> list[int]:
    """Return sizes in proportion to ``loads``, rounded, with the remainder in the last.

    Args:
        batch_size: Samples to share out, >= 0.
        loads: One number per slice, finite and >= 0, not all 0. A load of 0 gets no samples.

    Raises:
        ConfigError: An argument is out of range.

    Guarantees:
        The sizes are >= 0 and add up to ``batch_size``; a positive load gets at least one
        sample where there are enough for all.

    Example:
        >>> work_load_sizes(10, [1, 1, 1]), work_load_sizes(10, [1, 2, 3])
        ([3, 3, 4], [2, 3, 5])

    Source:
        MXNet 1.9 ``executor_group.py``, ``_split_input_slice``, which fails where a slice
        comes out empty.
    """
    check_loads(loads)
    _check_counts(batch_size, len(loads))
    total = math.fsum(loads)
    sizes = [round(load * batch_size / total) for load in loads[:-1]]
    sizes.append(batch_size - sum(sizes))
    spoiled = any(
        size < 0 or (size == 0) != (load == 0) for size, load in zip(sizes, loads, strict=True)
    )
    return proportional_sizes(batch_size, loads) if spoiled else sizes


def proportional_sizes(batch_size: int, loads: Sequence[float]) -> list[int]:
    """Return sizes as near to the proportions of ``loads`` as whole samples allow.

    The largest remainder decides who gets the odd samples, the first of equals; then slices
    without samples take one from the largest slice each, the greatest load first.

    Args:
        batch_size: Samples to share out, >= 0.
        loads: As for :func:`work_load_sizes`.

    Raises:
        ConfigError: An argument is out of range.

    Guarantees:
        As :func:`work_load_sizes`.

    Example:
        >>> proportional_sizes(10, [1, 1, 1]), proportional_sizes(4, [100, 1, 1])
        ([4, 3, 3], [2, 1, 1])
    """
    check_loads(loads)
    _check_counts(batch_size, len(loads))
    total = math.fsum(loads)
    exact = [load * batch_size / total for load in loads]
    sizes = [math.floor(value) for value in exact]
    order = sorted(
        (index for index, load in enumerate(loads) if load > 0),
        key=lambda index: (sizes[index] - exact[index], index),
    )
    for place in range(batch_size - sum(sizes)):
        sizes[order[place % len(order)]] += 1
    for index in sorted(order, key=lambda index: -loads[index]):
        giver = max(range(len(sizes)), key=sizes.__getitem__)
        if sizes[index] == 0 and sizes[giver] > 1:
            sizes[giver] -= 1
            sizes[index] += 1
    return sizes


def check_loads(loads: Sequence[float]) -> None:
    """Refuse work loads that no batch can be split by.

    Raises:
        ConfigError: ``loads`` is empty, all 0, or holds something else than numbers >= 0.
    """
    for load in loads:
        if not _is_number(load) or not math.isfinite(load) or load < 0:
            raise ConfigError(f"a work load must be a finite number >= 0, got {load!r}")
    if not any(loads) or not math.isfinite(sum(loads)):
        raise ConfigError(f"work_load_list needs a positive, finite sum, got {list(loads)}")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_counts(batch_size: int, num_slice: int) -> None:
    if isinstance(num_slice, bool) or not isinstance(num_slice, int) or num_slice < 1:
        raise ConfigError(f"num_slice must be an integer >= 1, got {num_slice!r}")
    if batch_size < 0:
        raise ConfigError(f"a batch has at least 0 samples, got {batch_size}")


class EvenShares:
    """The same for each of ``num_contexts`` contexts, by :func:`even_sizes`."""

    measures = False

    def __init__(self, num_contexts: int) -> None:
        _check_counts(0, num_contexts)
        self.shares = (1 / num_contexts,) * num_contexts

    def sizes(self, batch_size: int) -> list[int]:
        """As :meth:`Shares.sizes`."""
        return even_sizes(batch_size, len(self.shares))

    def record(self, sizes: Sequence[int], seconds: Sequence[float]) -> None:
        """Learn nothing."""


class FixedShares:
    """Shares in proportion to given work loads, by :func:`work_load_sizes`.

    Raises:
        ConfigError: A load is negative or no number, or all are 0.

    Example:
        >>> FixedShares([3, 1]).shares
        (0.75, 0.25)
    """

    measures = False

    def __init__(self, loads: Sequence[float]) -> None:
        check_loads(loads)
        self._loads = tuple(loads)
        total = math.fsum(loads)
        self.shares = tuple(float(load / total) for load in loads)

    def sizes(self, batch_size: int) -> list[int]:
        """As :meth:`Shares.sizes`."""
        return work_load_sizes(batch_size, self._loads)

    def record(self, sizes: Sequence[int], seconds: Sequence[float]) -> None:
        """Learn nothing."""
