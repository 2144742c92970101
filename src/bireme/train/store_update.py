"""The store merges gradients and runs the optimizer; every replica pulls new weights.

The user's optimizer object stays the place where hyper-parameters are set and ``state_dict`` is
read: numbers travel to the store when they change, and state when it is asked for or loaded, be it
through the trainer or through the optimizer itself.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from bireme.errors import ConfigError, StateError
from bireme.kvstore.base import Key, KVStore, KVStoreBase
from bireme.train import amp
from bireme.train.exchange import Exchange
from bireme.train.mode import Closure, Rider
from bireme.update.spec import OptimizerSpec

__all__ = ("StoreUpdate", "check_runs_in_store", "detach")


def check_runs_in_store(optimizer: torch.optim.Optimizer, store: KVStoreBase) -> None:
    """Refuse an optimizer that ``store`` cannot run; changes nothing.

    Raises:
        ConfigError: The store runs none.
        UnsupportedError: The optimizer needs a closure, or is not a class of ``torch.optim``.
    """
    if not isinstance(store, KVStore) or not store.is_capable(KVStore.OPTIMIZER):
        raise ConfigError(
            f"a {store.type!r} store cannot run an optimizer; leave update_on_kvstore out, and "
            f"the trainer updates here"
        )
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    OptimizerSpec.from_optimizer(optimizer, range(count))


class _Hook:
    """Called by the optimizer; a class of its own, by which it is found again."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __call__(self, _optimizer: torch.optim.Optimizer) -> None:
        self._act()


def detach(optimizer: torch.optim.Optimizer) -> None:
    """Undo :meth:`StoreUpdate.attach` of an earlier trainer of ``optimizer``."""
    for hooks in (
        optimizer._optimizer_state_dict_pre_hooks,
        optimizer._optimizer_load_state_dict_post_hooks,
    ):
        for number in [number for number, hook in hooks.items() if isinstance(hook, _Hook)]:
            del hooks[number]


class StoreUpdate:
    """Update in the store. A :class:`~bireme.train.mode.Mode`.

    Args:
        optimizer: The user's optimizer, over parameters of replica 0; a class of ``torch.optim``.
        exchange: This trainer's part of the store.

    Raises:
        ConfigError: Another trainer uses the store too.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, exchange: Exchange) -> None:
        self._optimizer = optimizer
        self._exchange = exchange
        self._lineup = exchange.lineup
        store = exchange.store
        assert isinstance(store, KVStore)
        self._store = store
        if exchange.number:
            raise ConfigError(
                "this store serves another trainer already, and it applies one optimizer to all "
                "keys; give each trainer with update_on_kvstore=True a store of its own"
            )
        self._positions: Sequence[int] = ()
        self._sent: list[dict[str, object]] = []
        self._versions: dict[int, int] = {}

    def attach(self) -> None:
        """Let the optimizer's own ``state_dict`` and ``load_state_dict`` reach the store.

        State that the optimizer brings along, as from a checkpoint, becomes the store's: rank
        0's.
        """
        self._optimizer.register_state_dict_pre_hook(_Hook(self.pull_state))
        self._optimizer.register_load_state_dict_post_hook(_Hook(self._push_state))
        if self._exchange.anyone("state", bool(self._optimizer.state)):
            self._push_state()

    @property
    def scales(self) -> bool:
        """Always: the scaler sees one replica only."""
        return True

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Push weighted gradients, pull weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()

        def apply(_: torch.optim.Optimizer) -> None:
            # Only here are gradients as they will be pushed: hooks before the step have run.
            self._pushpull(self._shares(counts))

        # The user's step hooks run around it, as they run around optimizer.step().
        torch.optim.Optimizer.profile_hook_step(apply)(self._optimizer)
        # A scheduler on the inner optimizer asks whether a step has been taken.
        self._optimizer._opt_called = True  # type: ignore[attr-defined]
        return loss

    def merge(self, counts: Sequence[float]) -> None:
        """Refuse."""
        raise StateError(
            "allreduce_grads() is not possible when the store updates as it merges; make the "
            "trainer with update_on_kvstore=False"
        )

    def update(self, closure: Closure) -> float | None:
        """Refuse."""
        raise StateError(
            "update() is not possible when the store updates as it merges; call step(), or make "
            "the trainer with update_on_kvstore=False"
        )

    def refresh(self, positions: Sequence[int]) -> None:
        """Take note of which parameters are optimized."""
        self._positions = positions
        self._send_numbers()

    def ride(self, rider: Rider) -> None:
        """Let every agreement on sample counts carry the words of ``rider`` too."""
        self._exchange.rider = rider

    def forget(self) -> None:
        """Do nothing: gradients are never merged ahead of the step."""

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if any replica's do."""
        total = self._exchange.overflows if self._exchange.meets_others else None
        amp.share_overflow(self._lineup, self._positions, total)

    def scaled_step(
        self, scale: torch.Tensor | None, found_inf: float | torch.Tensor, counts: Sequence[float]
    ) -> float | None:
        """Skip if gradients overflowed, else unscale those of every replica and step."""
        if float(found_inf):
            self._exchange.skip_round(self._positions)
            return None
        if scale is not None:
            amp.unscale(self._lineup, self._positions, scale)
        elif len(self._lineup) > 1:
            raise StateError(
                "scaler.unscale_(trainer) has unscaled the first replica only; leave it out, or "
                "make the trainer with update_on_kvstore=False and call "
                "trainer.allreduce_grads() before it"
            )
        return self.step(None, counts)

    def pull_state(self) -> None:
        """Bring the optimizer's state from the store into the user's optimizer."""
        state: dict[torch.Tensor, dict[str, object]] = {}
        found = self._store.optimizer_states()
        for index in self._positions:
            mine = found.get(self._exchange.key(index))
            if mine:
                param = self._lineup.params[0][index]
                state[param] = {name: _moved(value, param) for name, value in mine.items()}
        self._optimizer.state.clear()
        self._optimizer.state.update(state)

    def _push_state(self) -> None:
        """Let the state and numbers of the user's optimizer be those of the store."""
        self._send_weights()
        held = [index for index in self._positions if self._state_of(index)]
        keys = self._exchange.keys(held)
        self._note(held)
        self._send_numbers()
        chosen = {key: self._state_of(index) for key, index in zip(keys, held, strict=True)}
        mine, known = self._mine(), self._store.optimizer_states()
        foreign = {key: state for key, state in known.items() if key not in mine}
        self._store.set_optimizer_states({**foreign, **chosen})
        self._optimizer.state.clear()

    def _shares(self, counts: Sequence[float]) -> list[float]:
        return self._exchange.shares(counts)

    def _pushpull(self, weights: Sequence[float]) -> None:
        self._send_numbers()
        self._send_weights()
        found = self._exchange.gather(self._positions, weights)
        positions = [*found.dense_positions, *found.rows_positions]
        keys = self._exchange.keys(positions)
        outs = [[param.detach() for param in self._lineup.same(index)] for index in positions]
        cut = len(found.dense_positions)
        if found.dense:
            self._store.pushpull(keys[:cut], found.scaled(), outs[:cut])
        if found.rows:
            self._store.push(keys[cut:], found.rows)
            self._store.pull(keys[cut:], outs[cut:])
        self._note(positions)

    def _numbers(self) -> list[dict[str, object]]:
        numbers = [_numbers(group) for group in self._optimizer.param_groups]
        return [*numbers, {"keys": len(self._positions)}]

    def _numbers_changed(self) -> bool:
        return self._numbers() != self._sent

    def _send_numbers(self) -> None:
        if self._numbers_changed():
            self._store.set_optimizer(self._spec())
            self._sent = self._numbers()

    def _send_weights(self) -> None:
        """Overwrite stored values that the script changed here, as by loading a checkpoint."""
        moved = self._moved()
        if not moved:
            return
        keys, first = self._exchange.keys(moved), self._lineup.params[0]
        self._store.overwrite(keys, [first[index].detach() for index in moved])
        self._lineup.follow_first(moved)
        self._note(moved)

    def _moved(self) -> list[int]:
        first = self._lineup.params[0]
        return [index for index, seen in self._versions.items() if first[index]._version != seen]

    def _note(self, positions: Sequence[int]) -> None:
        first = self._lineup.params[0]
        self._versions.update((index, first[index]._version) for index in positions)

    def _state_of(self, index: int) -> dict[str, object]:
        state: dict[str, object] = self._optimizer.state.get(self._lineup.params[0][index], {})
        return state

    def _mine(self) -> set[Key]:
        return {self._exchange.key(index) for index in self._positions}

    def _spec(self) -> OptimizerSpec:
        keys: list[Key] = [self._exchange.key(index) for index in self._positions]
        return OptimizerSpec.from_optimizer(self._optimizer, keys)


def _numbers(group: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params"
    }


def _moved(value: object, param: torch.Tensor) -> object:
    # torch keeps step counts, which are scalars, on the CPU.
    if isinstance(value, torch.Tensor) and value.dim():
        return value.to(param.device)
    return value
