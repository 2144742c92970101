"""Cuts a number of samples into whole portions that take equally long, within limits.

Called by :mod:`bireme.balance.choosing` and :mod:`bireme.balance.plan`. Every worker cuts for
itself and must find the same numbers, so only sums, products and comparisons are used, which are
the same bits everywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bireme.errors import ConfigError

__all__ = ("Limits", "Line", "portions")

Line: TypeAlias = tuple[float, float]
"""``(a, c)``: a worker takes ``a + c * b`` seconds for ``b`` samples; a >= 0, c > 0."""

_HALVINGS = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """The fewest and the most samples of a batch that each worker may get.

    Args:
        batch_size: Samples of a whole batch, >= 1.
        minimum: The fewest of each worker in a whole batch, >= 1.
        maximum: The most of each worker: what fits into its memory.

    Raises:
        ConfigError: No batch can be cut that way.
    """

    batch_size: int
    minimum: int
    maximum: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.minimum * len(self.maximum) > self.batch_size:
            raise ConfigError(
                f"a batch of {self.batch_size} has no {self.minimum} samples for each of "
                f"{len(self.maximum)} workers; raise batch_size or lower minimum"
            )
        if sum(self.maximum) < self.batch_size:
            raise ConfigError(
                f"maximum {list(self.maximum)} leaves no place for a batch of {self.batch_size}; "
                "lower batch_size"
            )
        if min(self.maximum) < self.minimum:
            raise ConfigError(
                f"maximum {list(self.maximum)} is below minimum={self.minimum} for some worker"
            )

    def room(self, alive: Sequence[bool]) -> int:
        """Return the samples of the next whole batch: fewer if the living cannot hold it."""
        return min(self.batch_size, sum(self._highs(alive)))

    def cut(self, total: int, lines: Sequence[Line], alive: Sequence[bool]) -> list[int]:
        """Return the portions of ``total`` samples, none for the dead.

        Args:
            total: At least one for each worker alive, and within their maxima.
            lines: One for each worker; those of the dead do not matter.
            alive: Which workers take part; one at least.
        """
        lowest = min(self.minimum, total // sum(alive))
        return portions(total, lines, [lowest * here for here in alive], self._highs(alive))

    def _highs(self, alive: Sequence[bool]) -> list[int]:
        return [high if here else 0 for high, here in zip(self.maximum, alive, strict=True)]


def portions(
    total: int, lines: Sequence[Line], lows: Sequence[int], highs: Sequence[int]
) -> list[int]:
    """Return whole numbers that add up to ``total`` and end as nearly together as limits allow.

    Args:
        total: Samples to share out, between the sums of ``lows`` and ``highs``.
        lines: How long each worker takes.
        lows: The fewest samples of each.
        highs: The most samples of each.

    Raises:
        ConfigError: ``total`` is out of range.

    Guarantees:
        Odd samples go by the largest remainder, the first of equals.

    Example:
        >>> portions(10, [(0.0, 1.0)] * 3, [1] * 3, [10] * 3)
        [4, 3, 3]
        >>> portions(90, [(0.0, 1.0), (0.0, 2.0)], [1, 1], [50, 90])
        [50, 40]
    """
    if not sum(lows) <= total <= sum(highs):
        raise ConfigError(f"{total} samples do not fit between {list(lows)} and {list(highs)}")
    exact = _exact(total, lines, lows, highs)
    sizes = [
        min(max(math.floor(share), low), high)
        for share, low, high in zip(exact, lows, highs, strict=True)
    ]
    order = sorted(range(len(sizes)), key=lambda index: (sizes[index] - exact[index], index))
    place = 0
    while sum(sizes) < total:
        index = order[place % len(order)]
        sizes[index] += sizes[index] < highs[index]
        place += 1
    while sum(sizes) > total:
        place -= 1
        index = order[place % len(order)]
        sizes[index] -= sizes[index] > lows[index]
    return sizes


def _exact(
    total: int, lines: Sequence[Line], lows: Sequence[int], highs: Sequence[int]
) -> list[float]:
    """Return the portions before rounding: those of the time by which all are done."""
    limits = list(zip(lines, lows, highs, strict=True))

    def by(end_s: float) -> list[float]:
        return [
            float(min(max((end_s - fixed) / each, low), high))
            for (fixed, each), low, high in limits
        ]

    early = min(fixed + each * low for (fixed, each), low, _ in limits)
    late = max(fixed + each * high for (fixed, each), _, high in limits)
    for _ in range(_HALVINGS):
        middle = (early + late) / 2
        if not early < middle < late:
            break
        if math.fsum(by(middle)) < total:
            early = middle
        else:
            late = middle
    return by(late)
