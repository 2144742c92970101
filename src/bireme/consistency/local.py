"""Local steps: who meets when, if workers train alone in between. Plain values and arithmetic.

Users write a :class:`LocalSteps`; the trainer asks it, step by step, which part of the model is
to leave for the servers and which is to arrive.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bireme.errors import ConfigError

__all__ = ("LocalSteps", "Outer", "deal")


class Outer(StrEnum):
    """What the servers do with the differences that workers bring."""

    AVERAGE = "average"
    """The mean of the workers' parameters."""
    NESTEROV = "nesterov"
    """SGD with Nesterov momentum along the mean difference: DiLoCo."""
    ELASTIC = "elastic"
    """A centre and the workers pull each other: EASGD."""


_LR = {Outer.AVERAGE: 1.0, Outer.NESTEROV: 0.7, Outer.ELASTIC: 0.9}
_MOMENTUM = {Outer.AVERAGE: 0.0, Outer.NESTEROV: 0.9, Outer.ELASTIC: 0.0}
_OVERLAPPED_MIXING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSteps:
    """How often the workers of a ``dist_local`` store meet, and what happens then.

    Args:
        every: Steps of a worker from one exchange of a parameter to the next, >= 1.
        outer: ``"average"``, ``"nesterov"`` (DiLoCo) or ``"elastic"`` (EASGD).
        lr: Of the outer optimizer, > 0. By default 1 for ``average``, 0.7 for ``nesterov``; for
            ``elastic`` 0.9, of which each of n workers pulls with 0.9 / n.
        momentum: Of the outer optimizer, >= 0 and < 1; 0.9 for ``nesterov``, else 0.
        fragments: Parts of about equal size into which the parameters are divided. They are
            exchanged at different steps, evenly spread, so that the peak of the traffic falls.
        delay: Steps that a worker goes on while an exchange is under way, >= 0 and < ``every``.
        mixing: How much of its own parameters a worker keeps when an exchange arrives, >= 0 and
            < 1: 0 takes what the servers have. 0.5 with a delay, else 0; not for ``elastic``.
        staleness: How many exchanges a worker may be ahead of the slowest; 0 lets all wait for
            each other, ``None`` lets nobody wait. Then each difference is applied on arrival.

    Raises:
        ConfigError: A number is out of range, or means nothing to the outer optimizer.

    Example:
        >>> steps = LocalSteps(every=4, outer="nesterov", fragments=2)
        >>> [steps.leaving(step) for step in range(1, 9)]
        [[], [0], [], [1], [], [0], [], [1]]
        >>> steps.outer_arguments()
        {'lr': 0.7, 'momentum': 0.9, 'nesterov': True}

    Source:
        Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019; Zhang et al., "Deep
        learning with Elastic Averaging SGD", NIPS 2015; Douillard et al., "DiLoCo" (arXiv
        2311.08105) and "Streaming DiLoCo with overlapping communication" (arXiv 2501.18512).
    """

    every: int = 32
    outer: Outer | str = Outer.AVERAGE
    lr: float | None = None
    momentum: float | None = None
    fragments: int = 1
    delay: int = 0
    mixing: float | None = None
    staleness: int | None = 0

    def __post_init__(self) -> None:
        if self.outer not in tuple(Outer):
            known = ", ".join(repr(str(each)) for each in Outer)
            raise ConfigError(f"outer must be one of {known}; got {self.outer!r:.60}")
        object.__setattr__(self, "outer", Outer(self.outer))
        _whole("every", self.every, 1)
        _whole("fragments", self.fragments, 1, self.every, "every")
        _whole("delay", self.delay, 0, self.every - 1, "every - 1")
        if self.staleness is not None:
            _whole("staleness", self.staleness, 0)
        _real("lr", self.lr, 0, math.inf, above=True)
        _real("momentum", self.momentum, 0, 1)
        _real("mixing", self.mixing, 0, 1)
        elastic = self.outer is Outer.ELASTIC
        for name in ("momentum", "mixing"):
            if elastic and getattr(self, name):
                raise ConfigError(f"{name} means nothing to outer='elastic'; leave it out")
        if self.outer is Outer.NESTEROV and self.momentum == 0:
            raise ConfigError("outer='nesterov' needs a momentum > 0; 'average' has none")

    @property
    def kept(self) -> float:
        """How much of its own parameters a worker keeps when an exchange arrives."""
        if self.mixing is None:
            return _OVERLAPPED_MIXING if self.delay and self.outer is not Outer.ELASTIC else 0.0
        return float(self.mixing)

    def outer_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``torch.optim.SGD`` on the servers."""
        outer = Outer(self.outer)
        momentum = _MOMENTUM[outer] if self.momentum is None else self.momentum
        arguments: dict[str, Any] = {"lr": self._lr(), "momentum": float(momentum)}
        if outer is Outer.NESTEROV:
            arguments["nesterov"] = True
        return arguments

    def pull(self, num_workers: int) -> float:
        """Return how far a worker of ``elastic`` moves towards the centre: 0 to 1."""
        return self._lr() / num_workers

    def leaving(self, step: int) -> list[int]:
        """Return the fragments whose exchange begins after step ``step``, counted from 1."""
        every, count = self.every, self.fragments
        return [
            fragment
            for fragment in range(count)
            if (step - (fragment + 1) * every // count) % every == 0
        ]

    def _lr(self) -> float:
        return float(_LR[Outer(self.outer)] if self.lr is None else self.lr)


def deal(sizes: Sequence[int], num_fragments: int, held: Sequence[int] = ()) -> list[int]:
    """Return the fragment of each parameter: always the one that holds least so far.

    Args:
        sizes: Of the parameters, in an order that is the same on every worker.
        num_fragments: Fragments.
        held: What each fragment holds already; nothing by default.

    Example:
        >>> deal([4, 3, 2, 1], 2)
        [0, 1, 1, 0]
    """
    loads = [(held[each] if held else 0, each) for each in range(num_fragments)]
    heapq.heapify(loads)
    fragments = []
    for size in sizes:
        load, fragment = loads[0]
        heapq.heapreplace(loads, (load + size, fragment))
        fragments.append(fragment)
    return fragments


def _whole(name: str, value: object, low: int, high: int | None = None, what: str = "") -> None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not is_int or value < low or (high is not None and value > high):  # type: ignore[operator]
        bound = "" if high is None else f" and <= {what} ({high})"
        raise ConfigError(f"{name} must be an integer >= {low}{bound}, got {value!r:.60}")


def _real(name: str, value: object, low: float, high: float, *, above: bool = False) -> None:
    if value is None:
        return
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_real or not low <= value < high or (above and value == low):  # type: ignore[operator]
        bound = "" if high == math.inf else f" and < {high}"
        sign = ">" if above else ">="
        raise ConfigError(f"{name} must be a finite number {sign} {low}{bound}, got {value!r:.60}")
