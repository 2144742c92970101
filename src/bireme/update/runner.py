"""Runs an optimizer of ``torch.optim`` inside a store, key by key."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from bireme.errors import ConfigError
from bireme.types.keys import Key
from bireme.update.layout import Layout
from bireme.update.rehearsal import Form
from bireme.update.rule import Update
from bireme.update.spec import OptimizerSpec, Plain

__all__ = ("OptimizerRunner",)


class OptimizerRunner:
    """Applies gradients to stored values with one optimizer's rule and a state for each key.

    Args:
        optimizer: A spec; or a torch optimizer, whose hyper-parameters are read again at every
            call of :meth:`refresh`, so that learning-rate schedulers keep working.

    Guarantees:
        :meth:`check` and :meth:`apply` use the numbers of the last :meth:`refresh`.
        A key is updated exactly as ``torch.optim`` would update a parameter that is alone in its
        group. Hyper-parameters may change at any time; state is kept. What torch refuses is
        found by a rehearsal on a tiny tensor, before any value changes.

    Example:
        >>> import torch
        >>> runner = OptimizerRunner(OptimizerSpec("sgd", {"lr": 0.5}))
        >>> stored = torch.ones(2)
        >>> runner.apply([Update("w", torch.ones(2), stored)])
        >>> stored
        tensor([0.5000, 0.5000])
    """

    def __init__(self, optimizer: OptimizerSpec | torch.optim.Optimizer) -> None:
        self._lock = threading.Lock()
        self._live: torch.optim.Optimizer | None = None
        if isinstance(optimizer, OptimizerSpec):
            self._spec = optimizer
        elif isinstance(optimizer, torch.optim.Optimizer):
            self._spec = OptimizerSpec.from_optimizer(optimizer)
            self._live = optimizer
        else:
            raise ConfigError(
                "an optimizer must be an instance of a torch.optim class or an OptimizerSpec, "
                f"got {optimizer!r:.60} of type {type(optimizer).__name__}"
            )
        self._numbers = _Numbers(self._spec)
        self._keys: dict[Key, _Keyed] = {}
        self._optimizer: torch.optim.Optimizer | None = None
        self._rehearsed: set[object] = set()

    @property
    def spec(self) -> OptimizerSpec:
        """The rule and numbers that the next push will use.

        Raises:
            ConfigError: The torch optimizer was given numbers that it cannot use.
        """
        if self._live is not None and not self._spec.describes(self._live):
            fresh = OptimizerSpec.from_optimizer(self._live)
            self._rehearse_change(fresh)
            self._change(fresh)
        return self._spec

    def refresh(self) -> None:
        """Take up the torch optimizer's numbers, as :attr:`spec` does.

        Raises:
            ConfigError: They are numbers that it cannot use.
            UnsupportedError: They ask for state that does not exist.
        """
        # Not while another thread applies a push: all keys of a push get the same numbers.
        with self._lock:
            _ = self.spec

    def take_over(self, other: "OptimizerRunner") -> bool:
        """Take the hyper-parameters of ``other`` and keep the state, if the class is the same.

        Returns:
            Whether it was; if not, nothing changed.

        Raises:
            ConfigError: The state was made without something that the new ones need.
        """
        if other._spec.name != self._spec.name:
            return False
        self.check_take_over(other)
        self._live = other._live
        self._change(other._spec)
        return True

    def check_take_over(self, other: "OptimizerRunner") -> None:
        """Refuse hyper-parameters of the same class with which the state cannot be used.

        Raises:
            UnsupportedError: The state was made without something that the new ones need.
        """
        self._rehearse_change(other._spec)

    def check(self, key: Key, layout: Layout, row_sparse: bool) -> None:
        """Refuse a gradient that the optimizer cannot apply to such a value.

        Raises:
            ConfigError: The value holds integers, or torch refuses its form.
            UnsupportedError: The optimizer takes no row-sparse gradients, or only such.
        """
        if not layout.dtype.is_floating_point:
            raise ConfigError(
                f"key {key!r} holds {layout.dtype}, which no optimizer can update; keep it in a "
                "store without one"
            )
        if self._live is not None:
            self._spec.check_covers(key)
        form = Form(layout.dtype, len(layout.shape), layout.row_sparse, row_sparse)
        arguments = self._numbers.of(key)
        if (form, arguments.structure) not in self._rehearsed:
            form.rehearse(self._spec, key, arguments.values, arguments.values)
            self._rehearsed.add((form, arguments.structure))

    def apply(self, updates: Sequence[Update]) -> None:
        """Update every stored value in place."""
        with self._lock:
            groups: dict[tuple[_Arguments, Form], list[torch.Tensor]] = {}
            for update in updates:
                form = self._bind(update)
                groups.setdefault((self._numbers.of(update.key), form), []).append(update.stored)
                if self._spec.rescale_grad != 1.0:
                    update.merged.mul_(self._spec.rescale_grad)
            self._step(updates, groups)

    def _step(
        self,
        updates: Sequence[Update],
        groups: "Mapping[tuple[_Arguments, Form], list[torch.Tensor]]",
    ) -> None:
        if not updates:
            return
        optimizer = self._holder(updates[0].stored)
        # One step for all: what it costs beyond its arithmetic does not grow with the keys.
        optimizer.param_groups = [
            {**optimizer.param_groups[0], **arguments.values, "params": params}
            for (arguments, _), params in groups.items()
        ]
        try:
            for update in updates:
                update.stored.grad = update.merged
            optimizer.step()
        finally:
            for update in updates:
                update.stored.grad = None

    def _bind(self, update: Update) -> Form:
        form = Form.of(update)
        keyed = self._keys.get(update.key)
        if keyed is None or keyed.param is not update.stored:
            self._keep(update.key, update.stored, {} if keyed is None else self._state(keyed))
            keyed = self._keys[update.key]
        keyed.form = form
        return form

    def _keep(self, key: Key, param: torch.Tensor, state: Mapping[str, object]) -> None:
        # The optimizer finds a state by its tensor, so a key's old tensor must leave with it.
        holder = self._holder(param)
        if key in self._keys:
            holder.state.pop(self._keys[key].param, None)
        if state:
            holder.state[param] = _all_fitted(state, param)
        self._keys[key] = _Keyed(param)

    def _holder(self, param: torch.Tensor) -> torch.optim.Optimizer:
        if self._optimizer is None:
            self._optimizer = self._spec.build([param])
        return self._optimizer

    def _state(self, keyed: "_Keyed") -> dict[str, object]:
        found = None if self._optimizer is None else self._optimizer.state.get(keyed.param)
        return dict(found or {})

    def _change(self, fresh: OptimizerSpec) -> None:
        self._spec, self._numbers = fresh, _Numbers(fresh)

    def states(self) -> dict[Key, Mapping[str, object]]:
        """Return the state of every key that has one; the tensors are the live ones."""
        with self._lock:
            return {key: self._state(keyed) for key, keyed in self._keys.items()}

    def load_states(
        self, states: Mapping[Key, Mapping[str, object]], stored: Mapping[Key, torch.Tensor]
    ) -> None:
        """Replace all state.

        Args:
            states: What :meth:`states` returned, or an equal copy.
            stored: The stored value of each of those keys.
        """
        fitted = {key: _all_fitted(state, stored[key]) for key, state in states.items()}
        with self._lock:
            self._keys, self._optimizer = {}, None
            for key, state in fitted.items():
                self._keep(key, stored[key], state)

    def add_state(self, key: Key, state: Mapping[str, object], stored: torch.Tensor) -> None:
        """Replace the state of one key.

        Args:
            key: The key.
            state: As in :meth:`states`.
            stored: Its stored value.
        """
        with self._lock:
            self._keep(key, stored, state)

    def _rehearse_change(self, fresh: OptimizerSpec) -> None:
        numbers, done = _Numbers(fresh), set[object]()
        for key, keyed in self._keys.items():
            old, new = self._numbers.of(key), numbers.of(key)
            step = (keyed.form, old.structure, new.structure)
            if old.structure != new.structure and step not in done and keyed.form is not None:
                keyed.form.rehearse(fresh, key, old.values, new.values)
                done.add(step)


@dataclass(slots=True)
class _Keyed:
    """One key's tensor, by which the optimizer holds its state."""

    param: torch.Tensor
    form: Form | None = None


@dataclass(frozen=True, eq=False, slots=True)
class _Arguments:
    """The optimizer's arguments for some keys, and which of its terms they switch on."""

    values: Mapping[str, Plain]
    structure: tuple[object, ...]


class _Numbers:
    """The arguments of each key, worked out once; keys with equal ones share an object."""

    def __init__(self, spec: OptimizerSpec) -> None:
        self._spec = spec
        self._by_key: dict[Key, _Arguments] = {}
        self._distinct: dict[object, _Arguments] = {}

    def of(self, key: Key) -> _Arguments:
        """Return the arguments of ``key``."""
        found = self._by_key.get(key)
        if found is None:
            values = self._spec.arguments(key)
            fresh = _Arguments(values, _structure(values))
            found = self._distinct.setdefault(tuple(values.items()), fresh)
            self._by_key[key] = found
        return found


def _all_fitted(state: Mapping[str, object], param: torch.Tensor) -> dict[str, object]:
    return {name: _fitted(value, param) for name, value in state.items()}


def _fitted(value: object, param: torch.Tensor) -> object:
    # torch keeps step counts, which are scalars, on the CPU and in a type of their own.
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    return value.to(param.device, param.dtype if value.is_floating_point() else value.dtype)


def _structure(arguments: Mapping[str, Plain]) -> tuple[object, ...]:
    # What an optimizer accepts depends on which terms are switched on, not on their size.
    return tuple((name, bool(value)) for name, value in sorted(arguments.items()))
