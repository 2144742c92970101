"""The agreed portions of every step: what is in force, what comes next, and from which step on.

One :class:`Plan` lives on every worker. All hear the same sums of words, one for each step, and
so decide the same, without asking anyone. A decision is told to all with the next step and takes
effect at the step after that, plus as many as loaders fetch ahead: so a worker that replaces a
dead one learns it in time, and every batch is cut alike by everyone.

Called by :class:`bireme.data.BalancedBatchSampler`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bireme.balance import words
from bireme.balance.choosing import Chooser, proportional
from bireme.balance.portions import Limits
from bireme.errors import ConfigError, StateError

__all__ = ("Plan",)


class Plan:
    """How each step's batch is cut, as one worker knows it.

    Args:
        chooser: Decides what is best.
        limits: Of the portions.
        part: This worker's number.
        lookahead: Steps that loaders fetch ahead of training, >= 0; the same on all workers.

    Guarantees:
        Workers that take in the same sums have the same plan, also those that were started
        later in a dead worker's place and repeat its steps.
    """

    def __init__(self, chooser: Chooser, limits: Limits, part: int, lookahead: int) -> None:
        self._chooser, self._limits = chooser, limits
        self._part, self._lookahead = part, lookahead
        self.alive = [True] * len(limits.maximum)
        self.done = 0
        """Steps that are over."""
        self.factor = 1.0
        """By what sums over workers are multiplied at present, to make up for dead ones."""
        self._now = self._next = chooser.neutral(self.alive)
        self._switch = 0
        self._wish: list[int] | None = None
        self._fresh = True

    @property
    def learns(self) -> bool:
        """Whether portions follow measured times."""
        return self._chooser.learns

    @property
    def sizes(self) -> tuple[int, ...]:
        """The portions of a whole batch in the step that comes now."""
        return tuple(self._at(self.done))

    def room(self, step: int) -> int:
        """Return how many samples a whole batch has at ``step``.

        Raises:
            StateError: The step is further ahead than was allowed for.
        """
        self._check(step)
        return sum(self._at(step))

    def cut(self, step: int, total: int) -> list[int]:
        """Return each worker's part of a batch of ``total`` samples, <= ``room(step)``.

        A batch too small for all to have a sample is given whole to each of them: the mean of
        equal gradients is that gradient, and nobody has to do without a batch.

        Raises:
            StateError: The step is further ahead than was allowed for.
        """
        self._check(step)
        sizes = self._at(step)
        if total == sum(sizes):
            return list(sizes)
        takers = [size > 0 for size in sizes]
        if total < sum(takers):
            return [total * here for here in takers]
        return self._limits.cut(total, proportional([max(1, size) for size in sizes]), takers)

    def word(self, seconds: float, place: tuple[int, int] = (0, 0)) -> list[float]:
        """Return what this worker says with the step that comes now.

        Args:
            seconds: What its part of the step took; 0 when that is not known.
            place: Two numbers that say where in the data the step is, to be compared.
        """
        said = words.Word(self.done, self._fresh, max(0.0, seconds))
        return words.write(len(self.alive), self._part, said, self._known(place))

    def take(
        self, total: Sequence[float], samples: Sequence[int], place: tuple[int, int] = (0, 0)
    ) -> list[bool]:
        """Take in the sum of all words of the step that comes now: it is over then.

        Args:
            total: The sum.
            samples: What each worker was to compute in this step.
            place: As for :meth:`word`.

        Returns:
            Which workers took part.

        Raises:
            StateError: Workers count their steps differently, or their plans or places differ.
        """
        told = words.read(len(self.alive), total)
        step, self.factor = self.done, told.factor
        present = [word is not None for word in told.words]
        if self._fresh and told.plan is not None:
            self._adopt(told.plan)
        mine = told.words[self._part]
        if self._fresh and (mine is None or not mine.fresh or mine.step != step):
            # A step of the predecessor's, whose contribution this was.
            self.alive = present
        else:
            self._check_steps(told.words)
            if not self._fresh:
                self._check_plan(told.plan, place)
            self._go_on(told.words, present, samples)
        self.done = step + 1
        return present

    def skip(self) -> None:
        """Count a step in which nothing was exchanged."""
        self.done += 1

    def state(self) -> dict[str, Any]:
        """Return the newest portions and what was learned, as plain numbers and lists."""
        return {"sizes": list(self._next), "learned": self._chooser.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned, if it suits: of as many workers, all alive.

        Raises:
            ConfigError: It is no such state.
        """
        try:
            sizes = [int(each) for each in state["sizes"]]
            learned = state["learned"]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"this is not the state of a plan: {error!r}") from error
        suits = len(sizes) == len(self.alive) and all(sizes)
        if not (suits and self.learns and learned and sum(sizes) == self._limits.batch_size):
            return
        self._chooser.load(learned)
        self._now = self._next = sizes
        self._switch, self._wish = 0, None

    def _at(self, step: int) -> list[int]:
        return self._now if step < self._switch else self._next

    def _check(self, step: int) -> None:
        if step <= self.done + self._lookahead:
            return
        raise StateError(
            f"batch {step} was asked for when {self.done} steps were done: shares are agreed on "
            f"at each step, for {self._lookahead} steps ahead. Call trainer.balance(sampler) once "
            "and trainer.step() after every batch; for a DataLoader with num_workers > 0 make the "
            "sampler with lookahead=num_workers * prefetch_factor"
        )

    def _known(self, place: tuple[int, int]) -> list[int]:
        return [*self._now, *self._next, self._switch, *place]

    def _adopt(self, plan: Sequence[float]) -> None:
        count = len(self.alive)
        known = [round(each) for each in plan]
        self._now, self._next = known[:count], known[count : 2 * count]
        self._switch = known[2 * count]

    def _check_plan(self, plan: Sequence[float] | None, place: tuple[int, int]) -> None:
        # A mean over workers of whole numbers: one that differs moves it by a part of 1.
        least = 0.5 / len(self.alive)
        mine = self._known(place)
        if plan is None or any(abs(a - b) > least for a, b in zip(mine, plan, strict=True)):
            raise StateError(
                f"at step {self.done} workers disagree on shares or on the batch: portions, step "
                f"of the change, epoch and place are {mine} here and {plan} on average. Give every "
                "worker the same arguments, call set_epoch on all, and load the same state on all"
            )

    def _check_steps(self, spoken: Sequence[words.Word | None]) -> None:
        steps = {part: word.step for part, word in enumerate(spoken) if word is not None}
        if set(steps.values()) != {self.done}:
            raise StateError(
                f"workers count their steps differently: {steps}; every worker must call "
                "trainer.step() equally often"
            )

    def _go_on(
        self,
        spoken: Sequence[words.Word | None],
        present: list[bool],
        samples: Sequence[int],
    ) -> None:
        new = [word is not None and word.fresh for word in spoken]
        gone = [was and not here for was, here in zip(self.alive, present, strict=True)]
        self.alive, self._fresh = present, False
        for part, word in enumerate(spoken):
            if word is not None and word.seconds > 0 and samples[part] > 0:
                self._chooser.learn(part, samples[part], word.seconds)
        if any(new) and new != present:
            self._wish = self._chooser.joined(self._next, present, new)
        elif any(gone):
            self._wish = self._chooser.without(self._next, present)
        self._decide()

    def _decide(self) -> None:
        if self._switch > self.done + 1:
            return
        if self._wish is None:
            self._wish = self._chooser.better(self._next, self.alive)
        if self._wish is not None and self._wish != self._next:
            self._now, self._next = self._next, self._wish
            self._switch = self.done + 2 + self._lookahead
        self._wish = None
