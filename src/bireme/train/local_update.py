"""Steps here, by any optimizer, and an exchange with the other workers now and then.

The devices of this worker are in step all the time, by another :class:`~bireme.train.mode.Mode`;
only what is between workers is local.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bireme.consistency.local import LocalSteps, deal
from bireme.errors import ConfigError
from bireme.kvstore.base import Key, KVStore
from bireme.train import amp
from bireme.train.exchange import Exchange
from bireme.train.fragments import Fragment
from bireme.train.mode import Closure, Mode, Rider
from bireme.update.spec import OptimizerSpec

__all__ = ("LocalUpdate", "outer_optimizer")


def outer_optimizer(steps: LocalSteps) -> OptimizerSpec:
    """Return what the servers run: its gradient is the workers' mean (before - after).

    Example:
        >>> outer_optimizer(LocalSteps()).params
        {'lr': 1.0, 'momentum': 0.0}
    """
    return OptimizerSpec("sgd", steps.outer_arguments())


class LocalUpdate:
    """Local steps between exchanges. A :class:`~bireme.train.mode.Mode`.

    A step counts whether or not it changes anything: also one that a ``GradScaler`` skips, or
    one without samples. So workers that call ``step`` equally often meet.

    Args:
        inner: Steps on this worker's devices.
        exchange: This trainer's part of the store.
        steps: When workers meet.
    """

    def __init__(self, inner: Mode, exchange: Exchange, steps: LocalSteps) -> None:
        store = exchange.store
        assert isinstance(store, KVStore)
        self._store = store
        self._inner = inner
        self._exchange = exchange
        self._lineup = exchange.lineup
        self._steps = steps
        self._fragments = [Fragment(exchange, steps) for _ in range(steps.fragments)]
        self._positions: Sequence[int] = ()
        self._step = 0
        self._merged: Sequence[float] = ()

    @property
    def scales(self) -> bool:
        """Always: a step that overflows here counts too."""
        return True

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Step here, then exchange what is due."""
        loss = self._inner.step(closure, counts) if sum(counts) else None
        self._count(sum(counts))
        return loss

    def merge(self, counts: Sequence[float]) -> None:
        """Merge the gradients of this worker's replicas."""
        self._merged = counts
        self._inner.merge(counts)

    def update(self, closure: Closure) -> float | None:
        """Step here with the gradients as they are, then exchange what is due."""
        loss = self._inner.update(closure)
        self._count(sum(self._merged or [1.0] * len(self._lineup)))
        self._merged = ()
        return loss

    def refresh(self, positions: Sequence[int]) -> None:
        """Deal new parameters to the fragments; every worker comes here with the same."""
        self._inner.refresh(positions)
        self._positions = positions
        known = {index for fragment in self._fragments for index in fragment.positions}
        fresh = [index for index in positions if index not in known]
        sizes = [self._lineup.params[0][index].numel() for index in fresh]
        held = [fragment.size for fragment in self._fragments]
        dealt = deal(sizes, len(self._fragments), held)
        for number, fragment in enumerate(self._fragments):
            fragment.take_in(
                [index for index, target in zip(fresh, dealt, strict=True) if target == number]
            )

    def ride(self, rider: Rider) -> None:
        """Do nothing: a step agrees on nothing with other workers."""

    def forget(self) -> None:
        """Forget which gradients are merged."""
        self._merged = ()
        self._inner.forget()

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if those of any replica of this worker do."""
        self._inner.share_overflow()

    def scaled_step(
        self, scale: torch.Tensor | None, found_inf: float | torch.Tensor, counts: Sequence[float]
    ) -> float | None:
        """Skip if gradients overflowed here, else unscale and step; other workers are not asked."""
        overflows = bool(float(found_inf))
        if self._inner.scales:
            self._inner.scaled_step(scale, found_inf, counts)
        elif not overflows:
            if scale is not None:
                amp.unscale(self._lineup, self._positions, scale)
            self._inner.step(None, counts)
        self._count(0.0 if overflows else sum(counts))
        return None

    def pull_state(self) -> None:
        """Do nothing: the inner optimizer's state is here."""
        self._inner.pull_state()

    def settle(self) -> None:
        """Exchange everything now; every worker calls it, and all have the same afterwards."""
        for fragment in self._fragments:
            fragment.settle()

    def state(self) -> dict[str, Any]:
        """Return where the steps stand, what is under way, and the outer optimizer's state."""
        outer = self._store.optimizer_states()
        return {
            "step": self._step,
            "fragments": [fragment.state() for fragment in self._fragments],
            "outer": {
                self._lineup.names[index]: dict(outer[key])
                for index in self._positions
                if (key := self._exchange.key(index)) in outer
            },
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that :meth:`load` cannot take; changes nothing.

        Raises:
            ConfigError: It has another form, or is of other parameters.
        """
        try:
            if len(state["fragments"]) != len(self._fragments):
                raise ConfigError(
                    f"the state has {len(state['fragments'])} fragments, and the trainer "
                    f"{len(self._fragments)}"
                )
            for fragment, saved in zip(self._fragments, state["fragments"], strict=True):
                fragment.check(saved)
            int(state["step"])
            dict(state["outer"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"the state of the local steps cannot be read: {error!r}") from error

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checked state; every worker calls it, and rank 0's counts on the servers."""
        self._step = int(state["step"])
        for fragment, saved in zip(self._fragments, state["fragments"], strict=True):
            held = fragment.load(saved)
            if fragment.positions:
                self._store.overwrite(self._exchange.keys(fragment.positions), held)
        names = {name: index for index, name in enumerate(self._lineup.names)}
        outer: dict[Key, Mapping[str, object]] = {
            self._exchange.key(names[name]): own for name, own in state["outer"].items()
        }
        self._store.set_optimizer_states(outer)

    def _count(self, samples: float) -> None:
        self._step += 1
        leaving = self._steps.leaving(self._step)
        for number, fragment in enumerate(self._fragments):
            fragment.samples += samples
            if fragment.due == self._step:
                fragment.arrive()
            if number in leaving:
                fragment.leave(self._step + self._steps.delay)
        if not self._steps.delay:
            for number in leaving:
                self._fragments[number].arrive()
