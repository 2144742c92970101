"""Runs an optimizer of ``torch.optim`` inside a store, key by key."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.types.keys import Key
from bireme.update.layout import Layout
from bireme.update.rule import Update
from bireme.update.spec import OptimizerSpec, Plain

__all__ = ("OptimizerRunner",)


class OptimizerRunner:
    """Applies gradients to stored values with one optimizer's rule and a state for each key.

    Args:
        optimizer: A spec; or a torch optimizer, whose hyper-parameters are read again at every
            push, so that learning-rate schedulers keep working.

    Guarantees:
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
        self._keys: dict[Key, _Keyed] = {}
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
            self._spec = fresh
        return self._spec

    def take_over(self, other: "OptimizerRunner") -> bool:
        """Take the hyper-parameters of ``other`` and keep the state, if the class is the same.

        Returns:
            Whether it was; if not, nothing changed.

        Raises:
            ConfigError: The state was made without something that the new ones need.
        """
        if other._spec.name != self._spec.name:
            return False
        self._rehearse_change(other._spec)
        self._live, self._spec = other._live, other._spec
        return True

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
        form = _Form(layout.dtype, len(layout.shape), layout.row_sparse, row_sparse)
        arguments = self.spec.arguments(key)
        if (form, _structure(arguments)) not in self._rehearsed:
            form.rehearse(self.spec, key, arguments, arguments)
            self._rehearsed.add((form, _structure(arguments)))

    def apply(self, updates: Sequence[Update]) -> None:
        """Update every stored value in place."""
        with self._lock:
            spec = self.spec
            for update in updates:
                self._apply(spec, update)

    def _apply(self, spec: OptimizerSpec, update: Update) -> None:
        keyed = self._keys.get(update.key)
        if keyed is None or keyed.param is not update.stored:
            state = {} if keyed is None else keyed.state()
            keyed = _Keyed.made(spec, update.key, update.stored, state)
            self._keys[update.key] = keyed
        form = _Form.of(update)
        keyed.form = form
        keyed.optimizer.param_groups[0].update(spec.arguments(update.key))
        if spec.rescale_grad != 1.0:
            update.merged.mul_(spec.rescale_grad)
        update.stored.grad = update.merged
        try:
            keyed.optimizer.step()
        finally:
            update.stored.grad = None

    def states(self) -> dict[Key, Mapping[str, object]]:
        """Return the state of every key that has one; the tensors are the live ones."""
        with self._lock:
            return {key: keyed.state() for key, keyed in self._keys.items()}

    def load_states(
        self, states: Mapping[Key, Mapping[str, object]], stored: Mapping[Key, torch.Tensor]
    ) -> None:
        """Replace all state.

        Args:
            states: What :meth:`states` returned, or an equal copy.
            stored: The stored value of each of those keys.
        """
        spec = self.spec
        fresh = {key: _Keyed.made(spec, key, stored[key], state) for key, state in states.items()}
        with self._lock:
            self._keys = fresh

    def add_state(self, key: Key, state: Mapping[str, object], stored: torch.Tensor) -> None:
        """Replace the state of one key.

        Args:
            key: The key.
            state: As in :meth:`states`.
            stored: Its stored value.
        """
        fresh = _Keyed.made(self.spec, key, stored, state)
        with self._lock:
            self._keys[key] = fresh

    def _rehearse_change(self, fresh: OptimizerSpec) -> None:
        done: set[object] = set()
        for key, keyed in self._keys.items():
            old, new = self._spec.arguments(key), fresh.arguments(key)
            step = (keyed.form, _structure(old), _structure(new))
            if _structure(old) != _structure(new) and step not in done and keyed.form is not None:
                keyed.form.rehearse(fresh, key, old, new)
                done.add(step)


@dataclass(slots=True)
class _Keyed:
    """One key's optimizer, which holds its state."""

    param: torch.Tensor
    optimizer: torch.optim.Optimizer
    form: "_Form | None" = None

    @classmethod
    def made(
        cls, spec: OptimizerSpec, key: Key, param: torch.Tensor, state: Mapping[str, object]
    ) -> "_Keyed":
        optimizer = spec.build([param], key)
        if state:
            optimizer.state[param] = {name: _fitted(value, param) for name, value in state.items()}
        return cls(param, optimizer)

    def state(self) -> dict[str, object]:
        return dict(self.optimizer.state.get(self.param, {}))


@dataclass(frozen=True, slots=True)
class _Form:
    """All that decides whether an optimizer accepts a gradient, besides its arguments."""

    dtype: torch.dtype
    num_dims: int
    sparse_value: bool
    sparse_grad: bool

    @classmethod
    def of(cls, update: Update) -> "_Form":
        stored = update.stored
        return cls(stored.dtype, stored.dim(), stored.is_sparse, update.merged.is_sparse)

    def rehearse(
        self,
        spec: OptimizerSpec,
        key: Key,
        first: Mapping[str, Plain],
        then: Mapping[str, Plain],
    ) -> None:
        """Take one step with some arguments and one with others, on a tiny tensor.

        Raises:
            UnsupportedError: torch refuses.
        """
        value = torch.zeros((2,) * self.num_dims, dtype=self.dtype)
        grad = torch.ones_like(value)
        value = value.to_sparse(1) if self.sparse_value else value
        grad = grad.to_sparse(1) if self.sparse_grad else grad
        optimizer = spec.build([value], key)
        try:
            for arguments in (first, then):
                optimizer.param_groups[0].update(arguments)
                value.grad = grad.clone()
                optimizer.step()
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise self._refusal(spec, key, first == then, error) from error

    def _refusal(
        self, spec: OptimizerSpec, key: Key, steady: bool, error: Exception
    ) -> UnsupportedError:
        if not steady:
            return UnsupportedError(
                f"key {key!r}: torch.optim.{spec.name} cannot change these hyper-parameters and "
                f"keep its state ({error!r}); set_updater(None) first, which drops the state"
            )
        kinds = ("dense", "row-sparse")
        return UnsupportedError(
            f"key {key!r}: torch.optim.{spec.name} cannot apply a {kinds[self.sparse_grad]} "
            f"gradient to a {kinds[self.sparse_value]} value of {self.num_dims} dimensions and "
            f"type {self.dtype} ({error}); push {kinds[not self.sparse_grad]} gradients or "
            "choose another optimizer"
        )


def _fitted(value: object, param: torch.Tensor) -> object:
    # torch keeps step counts, which are scalars, on the CPU and in a type of their own.
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    return value.to(param.device, param.dtype if value.is_floating_point() else value.dtype)


def _structure(arguments: Mapping[str, Plain]) -> tuple[object, ...]:
    # What an optimizer accepts depends on which terms are switched on, not on their size.
    return tuple((name, bool(value)) for name, value in sorted(arguments.items()))
