"""Deals each global batch among unequal workers: an exact cover, whatever the portions.

Called by training scripts, as the ``batch_sampler=`` of a ``torch.utils.data.DataLoader``, and
connected to the workers' steps by :meth:`bireme.Trainer.balance`. How large the portions are is
decided in :mod:`bireme.balance`.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bireme.balance.choosing import WorkLoads, chooser
from bireme.balance.plan import Plan
from bireme.balance.portions import Limits
from bireme.data.course import Course, GlobalBatch
from bireme.data.shard_state import integer
from bireme.errors import ConfigError

__all__ = ("BalancedBatchSampler",)


class BalancedBatchSampler:
    """Hands each worker its portion of every global batch, in a new shuffled order every epoch.

    All workers compute the same order from (seed, epoch) and cut its batches of ``batch_size``
    one after the other, each into portions that follow the workers' speeds; the batches
    themselves are those of one process. Portions may change from step to step: every sample is
    used exactly once in each epoch all the same, and the last, smaller batch is shared too. A
    batch with fewer samples than workers is computed by all of them, which gives the same mean.

    With ``trainer.balance(sampler)`` each worker's times travel with its steps, so that all agree
    on portions without asking; ``trainer.step()`` then weighs gradients by them. When a worker is
    gone, its samples go to the others: those of its last batch come again at the end of the
    epoch's order (or of the next one's, where ``lookahead`` batches are on their way already).

    To accumulate gradients, cut the batch that a loader hands out: the portion is what one
    update sees of this worker.

    Args:
        n: Samples in the data set, >= 1.
        batch_size: Samples of all workers together in a step, >= ``num_parts * minimum``.
        num_parts: The workers: ``store.num_workers``.
        part_index: This one: ``store.rank``.
        work_load_list: One number > 0 for each worker, for portions in that proportion;
            ``"auto"`` for portions by measured speeds; ``None`` for equal ones.
        shuffle: Permute the samples each epoch.
        seed: 0 <= ``seed`` < 2**64.
        drop_last: Leave out the last batch if it is smaller.
        minimum: The fewest samples of each worker in a whole batch, >= 1.
        maximum: The most samples that fit into a worker's memory: one number, or one for each.
        lookahead: Batches that the loader fetches ahead: ``num_workers * prefetch_factor`` of the
            DataLoader, the largest of all workers. New portions take effect so much later.

    All arguments but ``part_index`` must be the same on all workers.

    Raises:
        ConfigError: A value is out of range, or no batch can be cut as they say.

    Example:
        >>> parts = [BalancedBatchSampler(9, 4, 2, part, work_load_list=[3, 1], shuffle=False)
        ...          for part in range(2)]
        >>> for part in parts: print(list(part))
        [[0, 1, 2], [4, 5, 6], [8]]
        [[3], [7], [8]]

    Source:
        Batches of constant size with portions by predicted time: Chen et al., "Semi-dynamic load
        balancing", SoCC 2020.
    """

    def __init__(  # noqa: PLR0913 (what a sampler and its shares need)
        self,
        n: int,
        batch_size: int,
        num_parts: int = 1,
        part_index: int = 0,
        *,
        work_load_list: WorkLoads = "auto",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        minimum: int = 1,
        maximum: int | Sequence[int] | None = None,
        lookahead: int = 0,
    ) -> None:
        self._n = integer("n", n, 1)
        num_parts = integer("num_parts", num_parts, 1)
        self._part = integer("part_index", part_index, 0, num_parts)
        self._shuffle, self._drop_last = bool(shuffle), bool(drop_last)
        self._seed = integer("seed", seed, 0, 2**64)
        self._limits = Limits(
            integer("batch_size", batch_size, 1),
            integer("minimum", minimum, 1),
            _maxima(maximum, num_parts, batch_size),
        )
        self._lookahead = integer("lookahead", lookahead, 0)
        if self._drop_last and self._n < batch_size:
            raise ConfigError(f"drop_last leaves nothing of {n} samples in batches of {batch_size}")
        self._loads = work_load_list
        self._plan = Plan(
            chooser(work_load_list, self._limits), self._limits, self._part, self._lookahead
        )
        self._connected = False
        self._batches: dict[int, GlobalBatch] = {}
        self._course = Course(self._n, self._seed, shuffle=self._shuffle)
        self._pass: object = None
        self.begun_s = 0.0
        """When the latest pass began, by ``time.perf_counter``."""

    @property
    def epoch(self) -> int:
        """The epoch of the current pass, or of the next one if none has begun."""
        return self._course.epoch

    @property
    def num_parts(self) -> int:
        """Workers among which batches are dealt."""
        return len(self._limits.maximum)

    @property
    def part_index(self) -> int:
        """This worker."""
        return self._part

    @property
    def sizes(self) -> tuple[int, ...]:
        """Each worker's portion of a whole batch in the step that comes now."""
        return self._plan.sizes

    @property
    def num_samples(self) -> int:
        """This worker's samples in the step that comes now, as far as it has been handed out."""
        batch = self._batches.get(self._plan.done)
        return 0 if batch is None else batch.counts[self._part]

    @property
    def expected(self) -> tuple[float, float]:
        """:attr:`num_samples`, and the samples that a store will count of all workers.

        Where a store makes up for dead workers, it counts those of the living so many times.
        """
        batch = self._batches.get(self._plan.done)
        if batch is None:
            return 0.0, 0.0
        living = [count for count, here in zip(batch.counts, self._plan.alive, strict=True) if here]
        return float(batch.counts[self._part]), self._plan.factor * sum(living)

    def __len__(self) -> int:
        """Return how many batches the current pass has, or the next if none has begun."""
        full, more = divmod(self._course.length, self._limits.batch_size)
        return full + (more > 0 and not self._drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        """Begin a pass; only the latest pass counts."""
        self._course.begin()
        self._batches = {}
        self._pass = object()
        self.begun_s = time.perf_counter()
        return self._hand_out(self._pass)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass.

        Args:
            epoch: 0 <= ``epoch`` < 2**64. The epoch of a state just loaded keeps its place
                within the epoch.

        Raises:
            ConfigError: ``epoch`` is out of range.
        """
        if self._course.go_to(integer("epoch", epoch, 0, 2**64)):
            self._pass = None

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the place in the epoch and the agreed portions, as JSON can hold them.

        The state is the same on every worker: one of them may save it, all load it.

        Args:
            consumed: Batches of the current pass that training has used; by default those that
                the connected trainer has stepped with, else those handed out.

        Raises:
            ConfigError: ``consumed`` is more than was handed out, or a trainer counts already.
        """
        course = self._course.state(self._used_after(consumed))
        return {**self._data(), **course, "plan": self._plan.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was saved, with as many workers or with others.

        With as many, portions and what is known of speeds are taken over too; otherwise they
        start afresh. The samples left in the epoch are the same in any case.

        Raises:
            ConfigError: The state is not one, or was made with another ``n``, ``batch_size``,
                ``seed``, ``shuffle`` or ``drop_last``. Nothing is changed.
        """
        names = {*self._data(), "epoch", "used", "extra", "again", "plan"}
        if not isinstance(state, Mapping) or set(state) != names:
            raise ConfigError(f"a sampler's state holds {', '.join(sorted(names))}; got {state!r}")
        for name, mine in self._data().items():
            if state[name] != mine:
                raise ConfigError(
                    f"the state was saved with {name}={state[name]!r}, this sampler has "
                    f"{name}={mine!r}; make the sampler with the former value"
                )
        course = self._course.resumed(state)
        self._plan.load(state["plan"])
        self._course, self._batches = course, {}

    def connect(self) -> str:
        """Let a trainer count the steps from now on; return what must be alike on all workers.

        Called by :meth:`bireme.Trainer.balance`.
        """
        self._connected = True
        loads = self._loads
        settings = {
            **self._data(),
            "work_load_list": loads if isinstance(loads, str | None) else [*map(float, loads)],
            "minimum": self._limits.minimum,
            "maximum": self._limits.maximum,
            "lookahead": self._lookahead,
            "num_parts": self.num_parts,
        }
        return json.dumps(settings, sort_keys=True)

    def word(self, seconds: float) -> list[float]:
        """Return what this worker tells the others with its step.

        Args:
            seconds: What its part of the step took; 0 when that is not known.
        """
        batch = self._batches.get(self._plan.done)
        place = (self._course.epoch, 0 if batch is None else batch.start)
        return self._plan.word(seconds, place)

    def take(self, total: Sequence[float]) -> None:
        """Take in the sum of all words of a step, which is over then; portions may change.

        Raises:
            StateError: Workers have counted different steps, or are at different batches.
        """
        batch = self._batches.pop(self._plan.done, None)
        counts = [0] * self.num_parts if batch is None else batch.counts
        present = self._plan.take(
            total, counts, (self._course.epoch, 0 if batch is None else batch.start)
        )
        if batch is not None:
            self._course.used = batch.end
            self._course.keep_lost(batch, present, is_over=self._pass is None)

    def skip(self) -> None:
        """Count a step in which nothing was exchanged."""
        batch = self._batches.pop(self._plan.done, None)
        self._plan.skip()
        if batch is not None:
            self._course.used = batch.end

    def _hand_out(self, token: object) -> Iterator[list[int]]:
        step = self._plan.done
        while self._pass is token and (batch := self._next_batch(step)) is not None:
            if self._connected:
                self._batches[step] = batch
            self._course.deal(batch.total)
            step += 1
            yield self._course.samples(batch.place(self._part))
        if self._pass is token:
            self._pass = None

    def _next_batch(self, step: int) -> GlobalBatch | None:
        rest = self._course.rest
        if not rest:
            return None
        # Without a trainer that counts them, steps are all alike.
        counted = self._connected or (self._plan.learns and self.num_parts > 1)
        at = step if counted else self._plan.done
        room = self._plan.room(at)
        if rest < room and self._drop_last:
            return None
        total = min(rest, room)
        return GlobalBatch(self._course.dealt, total, self._plan.cut(at, total))

    def _used_after(self, consumed: int | None) -> int:
        if consumed is None:
            return self._course.used if self._connected else self._course.dealt
        if self._connected:
            raise ConfigError("a trainer counts this sampler's steps; leave out consumed")
        return self._course.used_after(consumed, self._limits.batch_size)

    def _data(self) -> dict[str, Any]:
        return {
            "n": self._n,
            "batch_size": self._limits.batch_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
        }


def _maxima(
    maximum: int | Sequence[int] | None, num_parts: int, batch_size: int
) -> tuple[int, ...]:
    if maximum is None:
        return (batch_size,) * num_parts
    if isinstance(maximum, int):
        return (integer("maximum", maximum, 1),) * num_parts
    found = tuple(integer("maximum", each, 1) for each in maximum)
    if len(found) != num_parts:
        raise ConfigError(f"maximum holds {len(found)} numbers for {num_parts} workers")
    return found
