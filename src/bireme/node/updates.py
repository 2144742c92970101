"""Runs a store's optimizer on a server's slots."""

from collections.abc import Collection, Mapping

import torch

from bireme.errors import ConfigError
from bireme.node.cells import Cell
from bireme.node.partials import DensePartial, RowsPartial
from bireme.node.reads import compensation_of
from bireme.node.tickets import Slot
from bireme.update import (
    Layout,
    OptimizerRunner,
    OptimizerSpec,
    Update,
    own_numbers,
    spec_of,
    spec_with,
)

__all__ = ("StoreUpdater",)


class StoreUpdater:
    """Applies rounds' sums to slots with one optimizer, and keeps its state for each slot.

    Args:
        body: What ``to_body`` made: a class's name and plain numbers.
        allowed: What may be imported, besides ``torch.optim``.

    Raises:
        ConfigError: No such optimizer, one that is not allowed, or a number that it cannot use.
    """

    def __init__(self, body: Mapping[str, object], allowed: Collection[str] = ()) -> None:
        self._allowed = allowed
        self._specs = _Specs(body, allowed)
        self._compensation = compensation_of(body)
        self._runners: dict[int, OptimizerRunner] = {}

    @property
    def compensation(self) -> float:
        """Strength of the delay compensation; 0 when there is none."""
        return self._compensation

    @property
    def spec(self) -> OptimizerSpec:
        """The optimizer of keys that have no numbers of their own."""
        return self._specs.common

    def replace(self, body: Mapping[str, object]) -> bool:
        """Take other numbers and keep the state, if the class is the same; else change nothing."""
        specs = _Specs(body, self._allowed)
        if specs.name != self._specs.name:
            return False
        compensation = compensation_of(body)
        fresh = {key_id: OptimizerRunner(specs.of(key_id)) for key_id in self._runners}
        for key_id, runner in fresh.items():
            self._runners[key_id].check_take_over(runner)
        for key_id, runner in fresh.items():
            self._runners[key_id].take_over(runner)
        self._specs = specs
        self._compensation = compensation
        return True

    def check(self, cell: Cell, *, rows: bool) -> None:
        """Refuse a gradient that the optimizer cannot apply to the slot.

        Raises:
            ConfigError: The slot holds integers, or the optimizer refuses its form.
        """
        key_id, index = cell.slot
        layout = Layout(torch.Size(cell.param_shape), cell.shape.sum_dtype, False)
        self._runner(key_id).check(index, layout, rows)

    def apply(self, cell: Cell, total: DensePartial | RowsPartial) -> None:
        """Give the sum of a round to the optimizer."""
        key_id, index = cell.slot
        param = cell.parameter()
        try:
            self._runner(key_id).apply([Update(index, _gradient(param, total), param)])
        except Exception as error:  # a class by import path may raise anything
            raise ConfigError(f"{self._specs.title} failed: {error}") from error
        cell.changed()

    def states(self, slots: Collection[Slot]) -> dict[Slot, Mapping[str, object]]:
        """Return the state of those of ``slots`` that have one; the tensors are the live ones."""
        found: dict[Slot, Mapping[str, object]] = {}
        for key_id in {slot[0] for slot in slots} & self._runners.keys():
            for index, state in self._runners[key_id].states().items():
                if state and (key_id, int(index)) in slots:
                    found[key_id, int(index)] = state
        return found

    def forget_states(self) -> None:
        """Drop all state."""
        self._runners.clear()

    def add_states(
        self, states: Mapping[Slot, Mapping[str, object]], cells: Mapping[Slot, Cell]
    ) -> None:
        """Replace the state of some slots.

        Args:
            states: Flat tensors of the slots' lengths, other tensors, and plain numbers, by name.
            cells: The slots of this server.

        Raises:
            ConfigError: A slot is not one of this server's; nothing has changed then.
        """
        for slot in states:
            if slot not in cells:
                raise ConfigError(f"slot {slot[0]}.{slot[1]} is not here; init its key first")
        for (key_id, index), state in states.items():
            param = cells[key_id, index].parameter()
            runner = self._runner(key_id)
            runner.add_state(index, _in_shape(state, param), param)

    def _runner(self, key_id: int) -> OptimizerRunner:
        runner = self._runners.get(key_id)
        if runner is None:
            runner = OptimizerRunner(self._specs.of(key_id))
            self._runners[key_id] = runner
        return runner


class _Specs:
    """The optimizer of each key, checked once for all keys that have the same numbers."""

    def __init__(self, body: Mapping[str, object], allowed: Collection[str]) -> None:
        self._body = dict(body)
        self._allowed = allowed
        self.common = spec_of(body, None, allowed)
        """The optimizer of keys without own numbers."""
        self._special = own_numbers(body)
        self._distinct: dict[str, OptimizerSpec] = {}

    @property
    def name(self) -> str:
        """The class's name."""
        return self.common.name

    @property
    def title(self) -> str:
        """The class as messages name it."""
        return self.common.title

    def of(self, key_id: int) -> OptimizerSpec:
        """Return the optimizer of a key."""
        if key_id not in self._special:
            return self.common
        params = self._special[key_id]
        # Keys of one parameter group share it.
        number = repr(params)
        if number not in self._distinct:
            self._distinct[number] = spec_with(self._body, params, self._allowed)
        return self._distinct[number]


def _gradient(param: torch.Tensor, total: DensePartial | RowsPartial) -> torch.Tensor:
    if isinstance(total, DensePartial):
        return total.tensor.view(param.shape)
    values = total.rows.view(len(total.ids), *param.shape[1:])
    return torch.sparse_coo_tensor(
        total.ids[None], values, param.shape, is_coalesced=True, check_invariants=False
    )


def _in_shape(state: Mapping[str, object], param: torch.Tensor) -> dict[str, object]:
    return {
        name: value.view(param.shape)
        if isinstance(value, torch.Tensor) and value.dim() == 1 and len(value) == param.numel()
        else value
        for name, value in state.items()
    }
