"""How far a sampler has come in its epoch: what was handed out, what was used, what comes again.

Pure values. Called by :class:`bireme.data.BalancedBatchSampler`, which decides how large batches
and each worker's portions are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bireme.data.order import epoch_order
from bireme.data.shard_state import integer
from bireme.errors import ConfigError

__all__ = ("Course", "GlobalBatch")


@dataclass(slots=True)
class GlobalBatch:
    """A batch of all workers that was handed out: its place in the order, and each one's portion.

    Example:
        >>> batch = GlobalBatch(start=10, total=4, counts=[3, 1])
        >>> batch.place(0), batch.place(1)
        (slice(10, 13, None), slice(13, 14, None))
    """

    start: int
    total: int
    counts: list[int]

    @property
    def end(self) -> int:
        """The place in the order after its last sample."""
        return self.start + self.total

    @property
    def is_whole_everywhere(self) -> bool:
        """Whether it is too small to be shared, and everyone has all of it."""
        return sum(self.counts) > self.total

    def place(self, part: int) -> slice:
        """Return where in the order a worker's portion is."""
        start = self.start if self.is_whole_everywhere else self.start + sum(self.counts[:part])
        return slice(start, start + self.counts[part])


class Course:
    """Goes through a data set epoch by epoch, in one order on every worker.

    Args:
        n: Samples in the data set, >= 1.
        seed: 0 <= ``seed`` < 2**64.
        shuffle: Permute the samples each epoch.

    Attributes:
        epoch: Of the current pass, or of the next one if none has begun.
        used: Up to where in the order training has used samples.

    Example:
        >>> course = Course(4, seed=0, shuffle=False)
        >>> course.begin()
        >>> course.deal(3)
        >>> course.samples(slice(0, 3)), course.rest
        ([0, 1, 2], 1)
    """

    def __init__(self, n: int, seed: int, *, shuffle: bool) -> None:
        self._n, self._seed, self._shuffle = n, seed, shuffle
        self.epoch = 0
        self._resumed = False
        self._again: list[int] = []
        self._order: npt.NDArray[np.int64] | None = None
        # Places in the order: where the pass began, up to where it was handed out and trained on.
        self._begun = self.dealt = self.used = 0

    @property
    def length(self) -> int:
        """Samples of the current pass, or of the next one if none has begun."""
        end = self._n + len(self._again) if self._order is None else len(self._order)
        return end - self._begun

    @property
    def rest(self) -> int:
        """Samples that the current pass has not handed out yet."""
        assert self._order is not None
        return len(self._order) - self.dealt

    def go_to(self, epoch: int) -> bool:
        """Go to the beginning of an epoch unless this is it; return whether it is another one."""
        if epoch == self.epoch:
            return False
        self.epoch, self._resumed = epoch, False
        self._rewind()
        return True

    def begin(self) -> None:
        """Begin a pass: over the whole epoch, or over what a saved course left of it."""
        if not self._resumed:
            self._rewind()
            self._order = self._ordered(self._again)
            self._again = []
        self._resumed = False
        self._begun = self.dealt = self.used

    def deal(self, total: int) -> None:
        """Note that so many samples more were handed out."""
        self.dealt += total

    def samples(self, place: slice) -> list[int]:
        """Return the samples at a place of the order."""
        assert self._order is not None
        found: list[int] = self._order[place].tolist()
        return found

    def keep_lost(self, batch: GlobalBatch, present: Sequence[bool], *, is_over: bool) -> None:
        """Let the portions of workers that are gone come again, at the end of the order.

        Args:
            batch: In whose step they were found to be gone.
            present: Which workers are there.
            is_over: Whether all of the order was handed out; they come in the next one then.
        """
        if batch.is_whole_everywhere or all(present) or self._order is None:
            return
        lost = [
            each
            for part, here in enumerate(present)
            if not here
            for each in self.samples(batch.place(part))
        ]
        if is_over:
            self._again += lost
        else:
            self._order = np.concatenate([self._order, np.array(lost, dtype=np.int64)])

    def used_after(self, consumed: int, batch_size: int) -> int:
        """Return up to where samples are used after so many batches of the current pass.

        Raises:
            ConfigError: They are more than were handed out.
        """
        used = self._begun + integer("consumed", consumed, 0) * batch_size
        if used >= self.dealt + batch_size:
            raise ConfigError(
                f"consumed is {consumed} batches, but this pass has handed out only "
                f"{self.dealt - self._begun} samples of all workers"
            )
        return min(used, self.dealt)

    def state(self, used: int) -> dict[str, Any]:
        """Return the place in the epoch as plain numbers and lists.

        Args:
            used: Up to where samples are used.
        """
        extra = [] if self._order is None else self._order[self._n :].tolist()
        return {"epoch": self.epoch, "used": used, "extra": extra, "again": list(self._again)}

    def resumed(self, state: Mapping[str, Any]) -> "Course":
        """Return a course over the same data set that goes on where ``state`` was saved.

        Raises:
            ConfigError: A number in it is out of range.
        """
        found = Course(self._n, self._seed, shuffle=self._shuffle)
        found.epoch = integer("epoch", state["epoch"], 0, 2**64)
        extra, found._again = (
            [integer(name, each, 0, self._n) for each in state[name]] for name in ("extra", "again")
        )
        used = integer("used", state["used"], 0, self._n + len(extra) + 1)
        found._order, found._resumed = found._ordered(extra), True
        found._begun = found.dealt = found.used = used
        return found

    def _rewind(self) -> None:
        self._order = None
        self._begun = self.dealt = self.used = 0

    def _ordered(self, more: Sequence[int]) -> npt.NDArray[np.int64]:
        order = epoch_order(self._n, self._seed, self.epoch, shuffle=self._shuffle)
        return np.concatenate([order, np.array(more, dtype=np.int64)])
