"""What workers tell each other about a step: numbers that the servers add up.

Each worker fills in its own places of a list and leaves 0 in the others', so that the sum of all
lists holds what everyone said. Where a dead worker's contribution is made up for, the sum is
multiplied by some factor; each entry therefore comes with a 1 beside it to divide by.

Who has just been started does not know the plan; all others add the same plan, and their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bireme.errors import ConfigError

__all__ = ("Told", "Word", "length", "read", "write")

_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Word:
    """What one worker says."""

    step: int
    """Its count of steps before this one."""

    fresh: bool
    """It was just started and knows nothing of earlier steps."""

    seconds: float
    """What its part of the step took; 0 when it does not know."""


@dataclass(frozen=True, slots=True)
class Told:
    """What all said together."""

    words: tuple[Word | None, ...]
    """One for each worker; ``None`` for those who take no part any more."""

    factor: float
    """By what the sum was multiplied, to make up for dead workers."""

    plan: tuple[float, ...] | None
    """The mean of the plans of those who know it; ``None`` when nobody does."""


def length(num_workers: int, plan_length: int) -> int:
    """Return how many numbers a list has."""
    return _FIELDS * num_workers + 1 + plan_length


def write(num_workers: int, part: int, word: Word, plan: Sequence[int]) -> list[float]:
    """Return one worker's list.

    Args:
        num_workers: In the job.
        part: Who speaks.
        word: What it says.
        plan: What it knows; left out of the list when it is fresh.
    """
    said = [0.0] * length(num_workers, len(plan))
    start = _FIELDS * part
    said[start : start + _FIELDS] = [1.0, float(word.step), float(word.fresh), word.seconds]
    if not word.fresh:
        said[_FIELDS * num_workers :] = [1.0, *map(float, plan)]
    return said


def read(num_workers: int, total: Sequence[float]) -> Told:
    """Return what the sum of all lists says.

    Raises:
        ConfigError: It has another length than such a sum.

    Example:
        >>> one = write(2, 0, Word(7, False, 0.5), [3])
        >>> two = write(2, 1, Word(7, False, 1.5), [3])
        >>> told = read(2, [a + b for a, b in zip(one, two)])
        >>> [word.seconds for word in told.words], told.plan
        ([0.5, 1.5], (3.0,))
    """
    if len(total) <= _FIELDS * num_workers:
        raise ConfigError(f"{len(total)} numbers are too few for {num_workers} workers")
    words: list[Word | None] = []
    for start in range(0, _FIELDS * num_workers, _FIELDS):
        one, step, fresh, seconds = total[start : start + _FIELDS]
        words.append(Word(round(step / one), fresh > 0, seconds / one) if one > 0 else None)
    knowing, *plan = total[_FIELDS * num_workers :]
    known = tuple(each / knowing for each in plan) if knowing > 0 else None
    factor = max(total[: _FIELDS * num_workers : _FIELDS])
    return Told(tuple(words), factor, known)
