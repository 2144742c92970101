"""Which samples each worker trains on: an exact cover of the data set, epoch after epoch.

Called by training scripts, as the ``sampler=`` of a ``torch.utils.data.DataLoader`` (which
needs no more than iteration and ``len``). Who receives which place of the shuffled order is
decided in :mod:`bireme.data.dealing`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bireme.data.dealing import Deal
from bireme.data.order import epoch_order
from bireme.data.shard_state import Division, ShardState, integer
from bireme.errors import ConfigError

__all__ = ("ShardSampler",)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One way through an epoch: what was used before it, and where in its part it starts."""

    epoch: int
    earlier: tuple[Division, ...] = ()
    start: int = 0


class ShardSampler:
    """Hands each part its share of a data set, in a new shuffled order every epoch.

    All parts compute the same permutation from (seed, epoch) and deal it among themselves like
    cards, so nothing needs to be exchanged, every sample is used exactly once per epoch, and
    the parts are reshuffled among each other every epoch. Without :meth:`set_epoch` each pass
    repeats the same order.

    Parts are unequal when ``n`` does not divide evenly: by at most one sample, and no sample
    is repeated to fill up. In synchronous training every worker must still take part in every
    round, or the others wait. So either pass ``drop_last=True`` (equal parts, hence equally
    many batches), or let a worker that has run out go on with empty steps until the greatest
    of :attr:`sizes` is used up, with gradients weighted by sample counts.

    For a state saved between two epochs call ``set_epoch`` with the next one before
    :meth:`state_dict`; a state saved at an epoch's end resumes with an empty rest of it.

    Args:
        n: Samples in the data set, >= 1.
        num_parts: Parts to divide it into, >= 1; parts beyond ``n`` stay empty.
        part_index: This part, 0 <= ``part_index`` < ``num_parts``; usually the worker's rank.
        shuffle: Permute the samples each epoch; else deal them in their own order.
        seed: 0 <= ``seed`` < 2**64; must be the same on all parts.
        drop_last: Give all parts exactly their share. What is left over at the end of the
            epoch's order (fewer than ``num_parts`` samples; with ``shares`` fewer than their
            sum) is skipped: other samples each epoch when shuffled, else always the last.
        shares: One integer >= 1 per part, for workers of unequal speed: ``[3, 1]`` gives part
            0 three of four samples. Batch sizes in the same proportion keep parts in step.

    Raises:
        ConfigError: A value is out of range, or ``drop_last`` would leave nothing.

    Guarantees:
        The order depends on (n, seed, epoch) only: not on the platform or numpy's version.
        Memory is 8 bytes per sample while a pass is running, and none before.

    Example:
        >>> parts = [ShardSampler(7, 3, part, seed=1) for part in range(3)]
        >>> [len(part) for part in parts]
        [3, 2, 2]
        >>> sorted(index for part in parts for index in part)
        [0, 1, 2, 3, 4, 5, 6]

        Saving after two samples and going on with two parts instead of three:

        >>> passes = [iter(part) for part in parts]
        >>> used = [next(indices) for indices in passes]
        >>> state = parts[0].state_dict()
        >>> rest = [ShardSampler(7, 2, part, seed=1) for part in range(2)]
        >>> for part in rest: part.load_state_dict(state)
        >>> sorted(used + [index for part in rest for index in part])
        [0, 1, 2, 3, 4, 5, 6]

    Source:
        The behaviour of ``num_parts`` and ``part_index`` in MXNet's iterators, with the
        remainder kept and the shuffling done across parts.
    """

    def __init__(
        self,
        n: int,
        num_parts: int = 1,
        part_index: int = 0,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        shares: Sequence[int] | None = None,
    ) -> None:
        self._n = integer("n", n, 1)
        num_parts = integer("num_parts", num_parts, 1)
        self._part = integer("part_index", part_index, 0, num_parts)
        self._seed = integer("seed", seed, 0, 2**64)
        self._shuffle = bool(shuffle)
        self._drop_last = bool(drop_last)
        if shares is not None and len(shares) != num_parts:
            raise ConfigError(f"num_parts is {num_parts} but there are {len(shares)} shares")
        self._deal = Deal([1] * num_parts if shares is None else shares)
        if drop_last and self._deal.whole(self._n) == 0:
            raise ConfigError(
                f"drop_last leaves nothing of {self._n} samples for {num_parts} parts "
                f"(shares {list(self._deal.shares)}); use fewer parts or drop_last=False"
            )
        self._pass, self._position, self._resumed = _Pass(epoch=0), 0, False

    @property
    def epoch(self) -> int:
        """The epoch of the current pass, or of the next one if none has begun."""
        return self._pass.epoch

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of every part in this epoch (after a change of parts: in the rest of it)."""
        return self._deal.sizes(self._dealt(self._pass))

    def __len__(self) -> int:
        """Return how many indices the current pass hands out, or the next if none has begun."""
        return self.sizes[self._part] - self._pass.start

    def __iter__(self) -> Iterator[int]:
        """Begin a pass; only the latest pass counts for :meth:`state_dict`."""
        if not self._resumed:
            self._pass = _Pass(self._pass.epoch)
        self._resumed = False
        self._position = self._pass.start
        return self._hand_out(self._pass)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass.

        Args:
            epoch: 0 <= ``epoch`` < 2**64. The epoch of a state just loaded keeps its place
                within the epoch, so that a loop may call this first thing in every epoch.

        Raises:
            ConfigError: ``epoch`` is out of range.
        """
        epoch = integer("epoch", epoch, 0, 2**64)
        if epoch != self._pass.epoch:
            self._pass, self._position, self._resumed = _Pass(epoch), 0, False

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the place in the epoch, as plain numbers and lists that JSON can hold.

        Args:
            consumed: Samples of the current pass that training has really used. A DataLoader
                with workers fetches ahead, so more were handed out than used: pass the count
                of what came out of the loader (add up the lengths of the batches). ``None``
                counts everything handed out, which is exact for a loader without workers.

        Raises:
            ConfigError: ``consumed`` is negative or more than was handed out.
        """
        handed_out = self._position - self._pass.start
        if consumed is None:
            consumed = handed_out
        consumed = integer("consumed", consumed, 0)
        if consumed > handed_out:
            raise ConfigError(
                f"consumed is {consumed}, but this pass has handed out only {handed_out} samples"
            )
        positions: list[int | None] = [None] * len(self._deal.shares)
        positions[self._part] = self._pass.start + consumed
        return self._state(self._pass, positions).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was saved: with the same parts, or with others.

        The state may be this part's own, any other part's, or all of them together (see
        :meth:`merge_states`). From a state that tells the position of one part only, the
        others are taken to have advanced in step with it, as synchronous workers do; the
        samples left are then dealt to the new parts, and none is lost or used twice.

        Raises:
            ConfigError: The state is not one, or was made with another ``n``, ``seed``,
                ``shuffle`` or ``drop_last``, or does not tell where the other parts are (not
                in step with their shares, or at the end of a part shorter than others):
                merge the states of all parts. Nothing is changed.

        Guarantees:
            A state of the same division that holds this part's position restores exactly it.
        """
        former = ShardState.read(state)
        for name in ("n", "seed", "shuffle", "drop_last"):
            saved, mine = getattr(former, name), getattr(self, f"_{name}")
            if saved != mine:
                raise ConfigError(
                    f"the state was saved with {name}={saved!r}, this sampler has "
                    f"{name}={mine!r}; make the sampler with the former value"
                )
        if former.shares != self._deal.shares:
            used = former.all_positions()
            division = (former.shares, used)
            self._resume(_Pass(former.epoch, (*former.earlier, division)))
        else:
            start = former.positions[self._part]
            start = former.all_positions()[self._part] if start is None else start
            self._resume(_Pass(former.epoch, former.earlier, start))

    @staticmethod
    def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return one state that holds the position of every part.

        Needed where parts advance independently, as in asynchronous training, before the
        number of parts changes.

        Args:
            states: One state of each part, all of the same epoch; in any order.

        Raises:
            ConfigError: The states disagree in something else than their part's position,
                or a part is missing or given twice.
        """
        return ShardState.merge(states).to_dict()

    def _state(self, at: _Pass, positions: Sequence[int | None]) -> ShardState:
        return ShardState(
            n=self._n,
            seed=self._seed,
            shuffle=self._shuffle,
            drop_last=self._drop_last,
            epoch=at.epoch,
            earlier=at.earlier,
            shares=self._deal.shares,
            positions=tuple(positions),
        )

    def _resume(self, at: _Pass) -> None:
        self._pass, self._position, self._resumed = at, at.start, True

    def _dealt(self, at: _Pass) -> int:
        """Count the samples that all parts together hand out in the division of ``at``."""
        rest = self._n - sum(sum(positions) for _, positions in at.earlier)
        return self._deal.whole(rest) if self._drop_last else rest

    def _indices(self, at: _Pass) -> npt.NDArray[np.int64]:
        order = epoch_order(self._n, self._seed, at.epoch, shuffle=self._shuffle)
        for shares, positions in at.earlier:
            order = order[Deal(shares).left(positions, len(order))]
        return order[self._deal.places(self._part, self._dealt(at))]

    def _hand_out(self, at: _Pass) -> Iterator[int]:
        indices = self._indices(at)
        for place in range(at.start, len(indices)):
            if self._pass is at:
                self._position = place + 1
            yield int(indices[place])
