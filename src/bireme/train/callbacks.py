"""Callbacks for :meth:`bireme.Module.fit`: speed, checkpoints, early stopping.

A callback is any function of a :class:`~bireme.train.events.BatchEnd` or
:class:`~bireme.train.events.EpochEnd`; both are frozen dataclasses. An epoch callback that returns
``True`` ends the training, and one with a method ``close()`` has it called at the end. What draws
on a terminal is in :mod:`bireme.train.display`.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Literal

from bireme.errors import ConfigError
from bireme.train.display import EpochTable as EpochTable
from bireme.train.display import ProgressBar as ProgressBar
from bireme.train.events import BatchEnd as BatchEnd
from bireme.train.events import EpochEnd as EpochEnd

__all__ = (
    "BatchEnd",
    "Checkpoint",
    "EarlyStopping",
    "EpochEnd",
    "EpochTable",
    "ProgressBar",
    "Speedometer",
    "do_checkpoint",
)


class Speedometer:
    """Writes speed and metrics every ``frequent`` batches. A batch callback.

    Args:
        batch_size: Samples per batch, >= 1. Speed is counted from the batches' own sizes.
        frequent: Batches between two lines, >= 1.
        write: Called with each line; prints it by default. ``logging.info`` is a fine choice.
        clock: Returns the time in seconds.

    Raises:
        ConfigError: An argument is out of range.

    Source:
        MXNet 1.9 ``callback.Speedometer``, whose lines log parsers know.
    """

    def __init__(
        self,
        batch_size: int,
        frequent: int = 50,
        *,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        _check_positive("batch_size", batch_size)
        _check_positive("frequent", frequent)
        self._frequent = frequent
        self._write = write if write is not None else _print
        self._clock = clock
        self._epoch: int | None = None
        self._since_s = 0.0
        self._num_samples = 0

    def __call__(self, end: BatchEnd) -> None:
        """Count a batch."""
        if end.epoch != self._epoch or end.batch == 0:
            # The first batch starts the clock, so that waking data workers do not count.
            self._epoch, self._since_s, self._num_samples = end.epoch, self._clock(), 0
            return
        self._num_samples += end.num_samples
        if end.batch % self._frequent:
            return
        values = {"loss": end.loss} | end.metrics
        now_s = self._clock()
        speed = self._num_samples / (now_s - self._since_s) if now_s > self._since_s else math.inf
        shown = "\t".join(f"{name}={value:f}" for name, value in values.items())
        self._write(
            f"Epoch[{end.epoch}] Batch [{end.batch - self._frequent}-{end.batch}]\t"
            f"Speed: {speed:.2f} samples/sec\t{shown}"
        )
        self._since_s, self._num_samples = now_s, 0


class Checkpoint:
    """Saves the module every ``period`` epochs. An epoch callback.

    Args:
        prefix: Folder and start of the file names; the number of epochs done follows it.
        period: Epochs between two checkpoints, >= 1.

    Raises:
        ConfigError: ``period`` is out of range.

    Example:
        >>> save = Checkpoint("out/digits", period=2)  # out/digits-0002.*, out/digits-0004.*
    """

    def __init__(self, prefix: str | os.PathLike[str], period: int = 1) -> None:
        _check_positive("period", period)
        self._prefix, self._period = prefix, period

    def __call__(self, end: EpochEnd) -> None:
        """Save after every ``period``-th epoch."""
        num_done = end.epoch + 1
        if num_done % self._period == 0:
            end.module.save_checkpoint(self._prefix, num_done)


def do_checkpoint(prefix: str | os.PathLike[str], period: int = 1) -> Checkpoint:
    """Return a :class:`Checkpoint`.

    Source:
        MXNet 1.9 ``callback.do_checkpoint``.
    """
    return Checkpoint(prefix, period)


class EarlyStopping:
    """Ends the training when a value has not improved for some epochs. An epoch callback.

    Args:
        monitor: A metric's name: looked for in the evaluation, and without ``eval_data`` in the
            training metrics; ``"loss"`` is the training loss where it is not evaluated.
        patience: Epochs without improvement that are still borne, >= 0.
        mode: Whether ``"max"`` or ``"min"`` is better; by default ``"max"`` for names with
            ``acc``, else ``"min"``.
        min_delta: Least change that counts as improvement, >= 0.

    Raises:
        ConfigError: An argument is out of range; or, when called, there is no such value.
    """

    def __init__(
        self,
        monitor: str = "accuracy",
        patience: int = 3,
        mode: Literal["max", "min"] | None = None,
        *,
        min_delta: float = 0.0,
    ) -> None:
        if patience < 0 or not min_delta >= 0:
            raise ConfigError(
                f"patience and min_delta must be >= 0, got {patience!r} and {min_delta!r}"
            )
        if mode not in (None, "max", "min"):
            raise ConfigError(f"mode must be 'max' or 'min', got {mode!r}")
        self._monitor = "accuracy" if monitor == "acc" else monitor
        self._patience, self._min_delta = patience, min_delta
        self._sign = 1.0 if (mode or ("max" if "acc" in monitor else "min")) == "max" else -1.0
        self.best = -math.inf * self._sign
        self.best_epoch: int | None = None

    def __call__(self, end: EpochEnd) -> bool:
        """Return ``True`` when it is time to stop."""
        value = self._value(end)
        if self._sign * (value - self.best) > self._min_delta:
            self.best, self.best_epoch = value, end.epoch
        since = end.epoch - self.best_epoch if self.best_epoch is not None else end.epoch + 1
        return since > self._patience

    def _value(self, end: EpochEnd) -> float:
        known: Mapping[str, float] = {"loss": end.loss} | dict(end.evaluation or end.metrics)
        if self._monitor not in known:
            raise ConfigError(
                f"EarlyStopping watches {self._monitor!r}, but this run has {', '.join(known)}"
            )
        return known[self._monitor]


def _check_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be an integer >= 1, got {value!r}")


def _print(line: str) -> None:
    # Not through rich, which turns the tabs that log parsers look for into spaces.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
