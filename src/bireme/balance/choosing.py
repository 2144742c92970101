"""Chooses portions of the global batch: fixed ones, or those by which all workers end together.

:class:`bireme.balance.plan.Plan` asks, and decides when an answer takes effect.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from bireme.balance.portions import Limits, Line
from bireme.balance.speed import SpeedModel
from bireme.errors import ConfigError

__all__ = ("ByLoad", "BySpeed", "Chooser", "WorkLoads", "chooser", "proportional")

WorkLoads: TypeAlias = Sequence[float] | Literal["auto"] | None
"""One number > 0 for each worker; ``"auto"`` for measured speeds; ``None`` for equal portions."""

_SIGMAS = 3


class Chooser(Protocol):
    """Who should get how much of a whole batch. Every call is made on every worker alike."""

    @property
    def learns(self) -> bool:
        """Whether :meth:`learn` wants to know."""

    def neutral(self, alive: Sequence[bool]) -> list[int]:
        """Return the portions to begin with."""

    def learn(self, part: int, samples: int, seconds: float) -> None:
        """Take in that worker ``part`` took ``seconds`` > 0 for ``samples`` > 0."""

    def better(self, sizes: Sequence[int], alive: Sequence[bool]) -> list[int] | None:
        """Return portions worth a change from ``sizes``, if there are any."""

    def without(self, sizes: Sequence[int], alive: Sequence[bool]) -> list[int]:
        """Return portions for those who are left when others have gone."""

    def joined(self, sizes: Sequence[int], alive: Sequence[bool], new: Sequence[bool]) -> list[int]:
        """Return portions where ``new`` ones know nothing of what was learned before."""

    def state(self) -> dict[str, Any]:
        """Return what was learned, as plain numbers."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned."""


def chooser(work_loads: WorkLoads, limits: Limits) -> Chooser:
    """Return the chooser that a user's ``work_load_list`` asks for.

    Raises:
        ConfigError: It is none of :data:`WorkLoads`, or has another length than there are workers.
    """
    num_workers = len(limits.maximum)
    if work_loads is None:
        return ByLoad([1.0] * num_workers, limits)
    if isinstance(work_loads, str):
        if work_loads != "auto":
            raise ConfigError(f"work_load_list must be numbers or 'auto', got {work_loads!r}")
        return BySpeed(limits)
    loads = list(work_loads)
    if len(loads) != num_workers:
        raise ConfigError(
            f"work_load_list holds {len(loads)} numbers for {num_workers} workers: {loads!r}; "
            "give one for each (the contexts of one worker have a list of their own, that of "
            "bireme.Module)"
        )
    return ByLoad(loads, limits)


class ByLoad:
    """Portions in proportion to given numbers.

    Args:
        loads: One finite number > 0 for each worker.
        limits: Of the portions.

    Raises:
        ConfigError: A load is no number, or not > 0.

    Example:
        >>> ByLoad([3, 1], Limits(8, 1, (8, 8))).neutral([True, True])
        [6, 2]
    """

    learns = False

    def __init__(self, loads: Sequence[float], limits: Limits) -> None:
        for load in loads:
            number = isinstance(load, int | float) and not isinstance(load, bool)
            if not number or not 0 < load < math.inf:
                raise ConfigError(f"a worker's load must be a finite number > 0, got {load!r}")
        self._limits = limits
        self._lines = proportional(loads)

    def neutral(self, alive: Sequence[bool]) -> list[int]:
        """As :meth:`Chooser.neutral`."""
        return self._limits.cut(self._limits.room(alive), self._lines, alive)

    def learn(self, part: int, samples: int, seconds: float) -> None:
        """Learn nothing."""

    def better(self, sizes: Sequence[int], alive: Sequence[bool]) -> list[int] | None:
        """Return nothing: what was asked for is best."""
        return None

    def without(self, sizes: Sequence[int], alive: Sequence[bool]) -> list[int]:
        """As :meth:`Chooser.without`."""
        return self.neutral(alive)

    def joined(self, sizes: Sequence[int], alive: Sequence[bool], new: Sequence[bool]) -> list[int]:
        """As :meth:`Chooser.joined`: the new one has its predecessor's load."""
        return self.neutral(alive)

    def state(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


class BySpeed:
    """Portions by which all workers end at the same time, as far as their steps tell.

    Args:
        limits: Of the portions.
        min_gain: Change only where a step is expected to become shorter by this part, > 0, and by
            more than the noise of the measurements makes likely.
        settle: Steps of every worker with its present portion before the next change, >= 1.

    Example:
        >>> chooser = BySpeed(Limits(30, 1, (30, 30)))
        >>> sizes = chooser.neutral([True, True])
        >>> for _ in range(6):
        ...     chooser.learn(0, sizes[0], 0.1 * sizes[0])
        ...     chooser.learn(1, sizes[1], 0.2 * sizes[1])
        >>> sizes, chooser.better(sizes, [True, True])
        ([15, 15], [20, 10])
    """

    learns = True

    def __init__(self, limits: Limits, *, min_gain: float = 0.05, settle: int = 3) -> None:
        self._limits, self._min_gain, self._settle = limits, min_gain, settle
        self._num_workers = len(limits.maximum)
        self._begin()

    def neutral(self, alive: Sequence[bool]) -> list[int]:
        """As :meth:`Chooser.neutral`: equal portions."""
        return self._cut(proportional([1.0] * self._num_workers), alive)

    def learn(self, part: int, samples: int, seconds: float) -> None:
        """As :meth:`Chooser.learn`."""
        if self._models[part].learn(samples, seconds):
            self._sizes_seen[part].append(samples)
            del self._sizes_seen[part][: -2 * self._settle]

    def better(self, sizes: Sequence[int], alive: Sequence[bool]) -> list[int] | None:
        """As :meth:`Chooser.better`."""
        present = [part for part, here in enumerate(alive) if here]
        if any(
            self._sizes_seen[part].count(sizes[part]) < self._settle or not self._models[part].known
            for part in present
        ):
            return None
        lines = [model.line if model.known else (0.0, 1.0) for model in self._models]
        found = self._cut(lines, alive)
        noise = max(self._models[part].error for part in present)
        gain = self._duration_s(sizes, present) / self._duration_s(found, present) - 1
        if gain <= max(self._min_gain, _SIGMAS * noise):
            return None
        for seen in self._sizes_seen:
            seen.clear()
        return found

    def without(self, sizes: Sequence[int], alive: Sequence[bool]) -> list[int]:
        """As :meth:`Chooser.without`: those who are left keep their proportions."""
        return self._cut(proportional([max(1, size) for size in sizes]), alive)

    def joined(self, sizes: Sequence[int], alive: Sequence[bool], new: Sequence[bool]) -> list[int]:
        """As :meth:`Chooser.joined`: equal portions for new ones; the others keep proportions."""
        self._begin()
        even = self._limits.batch_size / self._num_workers
        old = sum(
            size for size, here, fresh in zip(sizes, alive, new, strict=True) if here and not fresh
        )
        rest = self._limits.batch_size - even * sum(new)
        loads = [
            even if fresh or not old else max(1, size) * rest / old
            for size, fresh in zip(sizes, new, strict=True)
        ]
        return self._cut(proportional(loads), alive)

    def state(self) -> dict[str, Any]:
        """Return what was learned, as plain numbers."""
        return {"models": [model.state() for model in self._models]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned.

        Raises:
            ConfigError: It is no such state, or of another number of workers.
        """
        models = state.get("models")
        if not isinstance(models, Sequence) or len(models) != self._num_workers:
            raise ConfigError(f"the state must hold {self._num_workers} speed models")
        fresh = [SpeedModel() for _ in models]
        for model, saved in zip(fresh, models, strict=True):
            model.load(saved)
        self._begin()
        self._models = fresh

    def _begin(self) -> None:
        self._models = [SpeedModel() for _ in range(self._num_workers)]
        # The portions of each worker's newest steps: a change waits until its effect is seen.
        self._sizes_seen: list[list[int]] = [[] for _ in range(self._num_workers)]

    def _cut(self, lines: Sequence[Line], alive: Sequence[bool]) -> list[int]:
        return self._limits.cut(self._limits.room(alive), lines, alive)

    def _duration_s(self, sizes: Sequence[int], present: Sequence[int]) -> float:
        return max(self._models[part].predict(sizes[part]) for part in present)


def proportional(loads: Sequence[float]) -> list[Line]:
    """Return lines that make portions proportional to ``loads``.

    Example:
        >>> proportional([2.0, 1.0])
        [(0.0, 0.5), (0.0, 1.0)]
    """
    return [(0.0, 1.0 / load) for load in loads]
