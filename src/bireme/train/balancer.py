"""Sets shares by measured speed: ``work_load_list="auto"``. Pure: times are given, not taken.

Called by :class:`bireme.Module`, which measures the contexts.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence, Sized
from typing import Literal

from bireme.errors import ConfigError
from bireme.train.workload import EvenShares, FixedShares, Shares, proportional_sizes

__all__ = ("Balancer", "shares_of")


class Balancer:
    """Sets the share of each context to its measured speed, and keeps it there.

    Steps are added up until some context has taken ``least_s``: times of shorter ones say more
    about the machine's other work than about the contexts. Each context's samples/second pass a
    median of the last ``window`` such measurements, against single slow ones, and then an
    exponential average. Shares change when one of them is more than ``tolerance`` away from the
    speeds, and then all are set to the speeds exactly, so noise below the tolerance moves nothing.
    The measured speed of a context rises more slowly than its share, which makes every correction
    smaller than the one before: shares do not oscillate.

    Args:
        num_contexts: Number of contexts, >= 1.
        warmup_steps: First steps to ignore: they allocate memory and pick algorithms.
        window: Measurements in the median, >= 1; also those before the first change.
        smoothing: Weight of the newest median in the average, in (0, 1].
        tolerance: Greatest relative distance of a share from the measured speeds, > 0.
        least_s: Seconds that make a measurement, >= 0; 0 takes every step as one.

    Raises:
        ConfigError: An argument is out of range.

    Example:
        >>> balancer = Balancer(2)
        >>> for _ in range(10):
        ...     sizes = balancer.sizes(40)
        ...     balancer.record(sizes, [sizes[0] / 300, sizes[1] / 100])  # seconds
        >>> balancer.sizes(40)
        [30, 10]
    """

    measures = True

    def __init__(
        self,
        num_contexts: int,
        *,
        warmup_steps: int = 2,
        window: int = 5,
        smoothing: float = 0.2,
        tolerance: float = 0.05,
        least_s: float = 0.01,
    ) -> None:
        if num_contexts < 1 or warmup_steps < 0 or window < 1:
            raise ConfigError("a balancer needs num_contexts >= 1, warmup_steps >= 0, window >= 1")
        if not 0 < smoothing <= 1 or not tolerance > 0:
            raise ConfigError("a balancer needs 0 < smoothing <= 1 and tolerance > 0")
        if not 0 <= least_s < math.inf:
            raise ConfigError(f"a balancer needs a finite least_s >= 0, got {least_s}")
        self._recent = [deque[float](maxlen=window) for _ in range(num_contexts)]
        self._seen = [0] * num_contexts
        self._warm = [0] * num_contexts
        self._begun = [(0, 0.0)] * num_contexts
        """Samples and seconds that are not enough for a measurement yet."""
        self._speeds: list[float | None] = [None] * num_contexts
        self._shares = [1 / num_contexts] * num_contexts
        self._warmup_steps, self._window = warmup_steps, window
        self._smoothing, self._tolerance = smoothing, tolerance
        self._least_s = least_s

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of each batch that each context gets; they add up to 1."""
        return tuple(self._shares)

    @property
    def speeds(self) -> tuple[float | None, ...]:
        """Samples/second of each context; ``None`` before it has been measured."""
        return tuple(self._speeds)

    def sizes(self, batch_size: int) -> list[int]:
        """Return the samples of each context in a batch of ``batch_size``.

        Every context gets one at least where the batch is large enough, so that it stays
        measurable however slow it was.
        """
        return proportional_sizes(batch_size, self._shares)

    def record(self, sizes: Sequence[int], seconds: Sequence[float]) -> None:
        """Learn from one step.

        Args:
            sizes: Samples that each context computed; 0 teaches nothing about it.
            seconds: Time that each context took, in seconds.

        Raises:
            ConfigError: There is not one entry for each context.
        """
        if not len(sizes) == len(seconds) == len(self._shares):
            raise ConfigError(
                f"the balancer has {len(self._shares)} contexts, got {len(sizes)} sizes and "
                f"{len(seconds)} times"
            )
        for index, (size, duration_s) in enumerate(zip(sizes, seconds, strict=True)):
            if size > 0 and duration_s > 0:
                self._add(index, size, duration_s)
        if max(measured_s for _, measured_s in self._begun) >= self._least_s:
            self._measure_all()
            self._adjust()

    def _add(self, index: int, size: int, duration_s: float) -> None:
        self._warm[index] += 1
        if self._warm[index] <= self._warmup_steps:
            return
        samples, measured_s = self._begun[index]
        self._begun[index] = samples + size, measured_s + duration_s

    def _measure_all(self) -> None:
        for index, (samples, measured_s) in enumerate(self._begun):
            if samples:
                self._measure(index, samples / measured_s)
        self._begun = [(0, 0.0)] * len(self._begun)

    def _measure(self, index: int, speed: float) -> None:
        self._seen[index] += 1
        recent, before = self._recent[index], self._speeds[index]
        recent.append(speed)
        middle = statistics.median(recent)
        settled = self._seen[index] > self._window
        weight = self._smoothing if settled else 1.0
        self._speeds[index] = middle if before is None else before + weight * (middle - before)

    def _adjust(self) -> None:
        speeds = [speed for speed in self._speeds if speed is not None]
        if len(speeds) < len(self._speeds) or min(map(len, self._recent)) < self._window:
            return
        total = math.fsum(speeds)
        wanted = [speed / total for speed in speeds]
        if any(
            abs(share - want) > self._tolerance * want
            for share, want in zip(self._shares, wanted, strict=True)
        ):
            self._shares = wanted


def shares_of(
    work_load_list: Sequence[float] | Literal["auto"] | None, num_contexts: int
) -> Shares:
    """Return who gets how much, as a module's ``work_load_list`` says.

    Args:
        work_load_list: One number for each context; ``"auto"`` for measured speeds; ``None`` for
            equal shares.
        num_contexts: Number of contexts, >= 1.

    Raises:
        ConfigError: It is none of these.

    Example:
        >>> shares_of([3, 1], 2).sizes(8), shares_of(None, 2).sizes(8)
        ([6, 2], [4, 4])
    """
    if work_load_list is None:
        return EvenShares(num_contexts)
    if isinstance(work_load_list, str):
        if work_load_list != "auto":
            raise ConfigError(f"work_load_list must be numbers or 'auto', got {work_load_list!r}")
        return Balancer(num_contexts)
    if not isinstance(work_load_list, Sized) or len(work_load_list) != num_contexts:
        raise ConfigError(
            f"work_load_list must hold one number per context ({num_contexts}), "
            f"got {work_load_list!r}"
        )
    return FixedShares(work_load_list)
