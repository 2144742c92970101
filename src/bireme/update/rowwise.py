"""Optimizers for rows that are each a parameter of its own, many at a time.

A server's table calls :class:`RowOptimizer` with the rows that a round touched. Every row has a
step count and a state of its own, and a row without a gradient is skipped, as ``torch.optim``
skips a parameter whose ``grad`` is ``None``: no momentum, decay or step count moves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from bireme.errors import UnsupportedError
from bireme.update.rowwise_adam import adam_step
from bireme.update.spec import OptimizerSpec
from bireme.update.wholeness import needs_whole_values

__all__ = ("RowOptimizer", "RowState")

_ADAMS = frozenset({"Adam", "AdamW"})
_STEP_IS_ONLY_A_COUNT = frozenset({"SGD", "RMSprop", "Adadelta", "Rprop"})


@dataclass(slots=True)
class RowState:
    """The state of some rows, gathered from a table."""

    tensors: dict[str, torch.Tensor]
    """By name, of the shape of the rows."""

    numbers: dict[str, torch.Tensor]
    """By name, one float64 for each row, such as ``step``."""

    fresh: torch.Tensor
    """Which rows have no state yet; their part of the others does not matter."""


class RowOptimizer:
    """Updates rows with an optimizer of ``torch.optim``.

    Args:
        spec: The optimizer; its default numbers are used.
        dim: Elements of a row.
        dtype: Of the rows and their state.

    Raises:
        UnsupportedError: The optimizer looks at more than one row at a time (Adafactor, Muon), or
            keeps a state that belongs to no row.

    Guarantees:
        Each row is updated as ``torch.optim`` would update a parameter that is this row, up to
        rounding. SGD, Adagrad, RMSprop, Adadelta, Rprop, Adam and AdamW take all rows at once; the
        others take the rows of each step count together.

    Example:
        >>> rows = torch.ones(2, 3)
        >>> optimizer = RowOptimizer(OptimizerSpec("sgd", {"lr": 0.5}), 3, torch.float32)
        >>> state = RowState({}, {}, torch.ones(2, dtype=torch.bool))
        >>> optimizer.step(rows, torch.ones(2, 3), state)
        >>> rows.unique().tolist()
        [0.5]
    """

    def __init__(self, spec: OptimizerSpec, dim: int, dtype: torch.dtype) -> None:
        if needs_whole_values(spec):
            raise UnsupportedError(
                f"{spec.title} looks at a whole matrix at once, and a table updates "
                "single rows; use SGD, Adagrad, Adam or another that works element by element"
            )
        self.spec = spec
        self._arguments = spec.arguments(None)
        self._optimizer = spec.build([torch.zeros(2, dim, dtype=dtype)])
        self.tensors, self.numbers = self._rehearse(dim, dtype)
        """Names of the state of each row: tensors of its shape, and numbers."""

    def step(self, rows: torch.Tensor, grads: torch.Tensor, state: RowState) -> None:
        """Update ``rows`` and ``state`` in place; ``grads`` may be overwritten.

        Args:
            rows: Of shape ``(n, dim)``, contiguous.
            grads: Their gradients.
            state: Theirs, with the names of :attr:`tensors` and :attr:`numbers`.
        """
        with torch.no_grad():
            if self.spec.rescale_grad != 1.0:
                grads.mul_(self.spec.rescale_grad)
            if self.spec.name in _ADAMS:
                adam_step(
                    self._arguments, rows, grads, _cleared(state), decoupled=self._is_decoupled
                )
                return
            for which in self._groups(state):
                self._step_alike(rows, grads, state, which)

    def _rehearse(self, dim: int, dtype: torch.dtype) -> tuple[tuple[str, ...], tuple[str, ...]]:
        trial = torch.zeros(2, dim, dtype=dtype)
        try:
            found = self._torch_step(trial, torch.ones_like(trial), {})
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise UnsupportedError(
                f"{self.spec.title} cannot update the rows of a table: {error}"
            ) from error
        tensors, numbers = [], []
        for name, value in found.items():
            if isinstance(value, torch.Tensor) and value.shape == trial.shape:
                tensors.append(name)
            elif isinstance(value, torch.Tensor | int | float) and _is_scalar(value):
                numbers.append(name)
            elif value is not None:
                raise UnsupportedError(f"{self.spec.title} keeps a {name!r} that belongs to no row")
        return tuple(tensors), tuple(numbers)

    def _groups(self, state: RowState) -> Iterator[torch.Tensor | None]:
        """Yield the rows that torch may update as one tensor; ``None`` when that is all."""
        parts = [state.fresh.to(torch.float64)]
        parts += [state.numbers[name] for name in self.numbers if not self._ignores(name)]
        keys = torch.stack(parts, 1)
        keys[state.fresh, 1:] = 0.0
        if len(keys) == 0 or bool((keys == keys[0]).all()):
            yield None
            return
        _, group = torch.unique(keys, dim=0, return_inverse=True)
        order = torch.argsort(group, stable=True)
        yield from torch.split(order, torch.bincount(group).tolist())

    @property
    def _is_decoupled(self) -> bool:
        return self.spec.name == "AdamW" or bool(self._arguments.get("decoupled_weight_decay"))

    def _ignores(self, name: str) -> bool:
        if name != "step":
            return False
        no_decay = self.spec.name == "Adagrad" and not self._arguments.get("lr_decay")
        return no_decay or self.spec.name in _STEP_IS_ONLY_A_COUNT

    def _step_alike(
        self, rows: torch.Tensor, grads: torch.Tensor, state: RowState, which: torch.Tensor | None
    ) -> None:
        index = torch.arange(len(rows)) if which is None else which
        if len(index) == 0:
            return
        mine = rows if which is None else rows[index]
        before: dict[str, object] = {}
        if not bool(state.fresh[index[0]]):
            before = {name: state.tensors[name][index] for name in self.tensors}
            first = {name: float(state.numbers[name][index[0]]) for name in self.numbers}
            before |= {name: self._number(name, value) for name, value in first.items()}
        after = self._torch_step(mine, grads if which is None else grads[index], before)
        if which is not None:
            rows[index] = mine
        for name in self.tensors:
            state.tensors[name][index] = _tensor(after[name])
        for name in self.numbers:
            if not self._ignores(name):
                state.numbers[name][index] = float(_scalar(after[name]))
            elif bool(state.fresh[index[0]]):
                state.numbers[name][index] = 1.0
            else:
                state.numbers[name][index] += 1.0

    def _number(self, name: str, value: float) -> object:
        """Return a number as torch keeps it: as a tensor, except where it counts in Python."""
        return int(value) if self.spec.name == "SparseAdam" else torch.tensor(value)

    def _torch_step(
        self, rows: torch.Tensor, grads: torch.Tensor, state: Mapping[str, object]
    ) -> dict[str, object]:
        optimizer = self._optimizer
        optimizer.param_groups[0]["params"] = [rows]
        if state:
            optimizer.state[rows] = dict(state)
        try:
            rows.grad = grads
            if self.spec.name == "SparseAdam":
                index = torch.arange(len(rows))[None]
                rows.grad = torch.sparse_coo_tensor(
                    index, grads, rows.shape, is_coalesced=True, check_invariants=False
                )
            optimizer.step()
            return dict(optimizer.state[rows])
        finally:
            rows.grad = None
            optimizer.state.clear()


def _cleared(state: RowState) -> RowState:
    for each in (*state.tensors.values(), *state.numbers.values()):
        each[state.fresh] = 0
    return state


def _is_scalar(value: torch.Tensor | float) -> bool:
    return not isinstance(value, torch.Tensor) or value.numel() == 1


def _tensor(value: object) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    return value


def _scalar(value: object) -> float:
    assert isinstance(value, torch.Tensor | int | float)
    return float(value)
