"""What one worker's steps tell of its speed: ``a + c * b`` seconds for ``b`` samples.

Called by :mod:`bireme.balance.choosing`, on every worker for each worker, with the same numbers.
"""

import math
from collections.abc import Mapping
from typing import Any

from bireme.balance.portions import Line
from bireme.errors import ConfigError

__all__ = ("SpeedModel",)

_SUMS = ("w", "b", "bb", "t", "bt")
_RIDGE = 0.001
_MOST_FIXED = 0.9
_MOST_STEPS = 10
_GUESS = 0.05
"""The relative noise of a step, before there is anything to tell it from."""
_NOISE_STEPS = 20


class SpeedModel:
    """Fits a line to a worker's steps, the newer the more, and tells slow steps from slow workers.

    Least squares with exponentially fading weights, drawn towards ``a = 0`` for as long as the
    numbers of samples do not differ enough to tell ``a`` from ``c``. A step far from what was to
    be expected is set aside; when ``patience`` of them follow each other on the same side, the
    worker has changed its speed: what was known before is forgotten.

    Args:
        warmup: First steps to ignore: they allocate memory and pick algorithms.
        memory: Factor by which a step's weight fades with each further step, in (0, 1).
        odd: Factor beyond which a step counts as odd, > 1.
        patience: Odd steps in a row that count as a change of speed.

    Example:
        >>> model = SpeedModel(warmup=0)
        >>> for samples in (10, 20, 10, 20):
        ...     _ = model.learn(samples, 0.5 + 0.1 * samples)
        >>> model.predict(40) > 4.0
        True
    """

    def __init__(
        self, *, warmup: int = 2, memory: float = 0.9, odd: float = 1.3, patience: int = 3
    ) -> None:
        self._warmup, self._memory, self._odd_factor = warmup, memory, odd
        self._patience = patience
        self._seen = 0
        self._last: tuple[int, float] = (0, 0.0)
        self._odd: list[tuple[int, float]] = []
        self._forget()

    @property
    def known(self) -> bool:
        """Whether there is anything to predict from."""
        return self._count > 0

    @property
    def line(self) -> Line:
        """The fit ``(a, c)``."""
        w, b, bb, t, bt = (self._sums[name] for name in _SUMS)
        damped = w * (1 + _RIDGE)
        determinant = damped * bb - b * b
        fixed = (t * bb - b * bt) / determinant
        if fixed <= 0:
            return 0.0, bt / bb
        most = _MOST_FIXED * t / w
        if fixed > most:
            return most, (1 - _MOST_FIXED) * t / b
        return fixed, (damped * bt - b * t) / determinant

    @property
    def error(self) -> float:
        """The relative uncertainty of a prediction: one standard deviation."""
        return math.sqrt(self._variance / max(1, min(self._count, _MOST_STEPS)))

    def predict(self, samples: int) -> float:
        """Return the seconds that ``samples`` should take."""
        fixed, each = self.line
        return fixed + each * samples

    def learn(self, samples: int, seconds: float) -> bool:
        """Take in one step; return whether it counts.

        Args:
            samples: What the worker computed, > 0.
            seconds: How long it took, > 0.
        """
        self._seen += 1
        if self._seen <= self._warmup:
            return False
        side = self._side(samples, seconds)
        if not side:
            self._odd.clear()
            self._add(samples, seconds)
            return True
        if self._odd and self._side(*self._odd[-1]) != side:
            self._odd.clear()
        self._odd.append((samples, seconds))
        if len(self._odd) < self._patience:
            return False
        self._forget()
        for step in self._odd:
            self._add(*step)
        self._odd.clear()
        return True

    def state(self) -> dict[str, Any]:
        """Return what was learned, as plain numbers."""
        return {
            "seen": self._seen,
            "count": self._count,
            "variance": self._variance,
            "last": list(self._last),
            "sums": [self._sums[name] for name in _SUMS],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned.

        Raises:
            ConfigError: It is no such state.
        """
        try:
            sums = [float(value) for value in state["sums"]]
            last = (int(state["last"][0]), float(state["last"][1]))
            seen, count = int(state["seen"]), int(state["count"])
            variance = float(state["variance"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ConfigError(f"this is not the state of a speed model: {error!r}") from error
        if len(sums) != len(_SUMS) or not all(map(math.isfinite, (*sums, variance, last[1]))):
            raise ConfigError("the state of a speed model holds five finite sums")
        self._sums = dict(zip(_SUMS, sums, strict=True))
        self._seen, self._count, self._last, self._variance = seen, count, last, variance

    def _forget(self) -> None:
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._count, self._variance = 0, _GUESS * _GUESS
        self._last = (0, 0.0)

    def _side(self, samples: int, seconds: float) -> int:
        """Return 1 for a step that is oddly slow, -1 for one oddly fast, else 0."""
        if not self._count:
            return 0
        # Without steps of other sizes nobody knows how much of the time is fixed: both extremes
        # must be left open.
        level, guess = self._sums["t"] / self._sums["w"], self.predict(samples)
        proportional = self._sums["bt"] / self._sums["bb"] * samples
        if seconds > self._odd_factor * max(level, guess, proportional):
            return 1
        return -(seconds * self._odd_factor < min(level, guess, proportional))

    def _add(self, samples: int, seconds: float) -> None:
        self._note_noise(samples, seconds)
        new = {
            "w": 1.0,
            "b": float(samples),
            "bb": float(samples * samples),
            "t": seconds,
            "bt": samples * seconds,
        }
        for name, value in new.items():
            self._sums[name] = self._memory * self._sums[name] + value
        self._count += 1

    def _note_noise(self, samples: int, seconds: float) -> None:
        before, last_s = self._last
        self._last = (samples, seconds)
        if before != samples:
            return
        # Half the square of the difference of two steps: the line's own faults do not count.
        relative = (seconds - last_s) / (seconds + last_s)
        weight = 1 / min(self._count + 1, _NOISE_STEPS)
        self._variance += weight * (2 * relative * relative - self._variance)
