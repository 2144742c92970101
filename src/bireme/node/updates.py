"""Runs a store's optimizer on a server's slots."""

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from bireme.errors import ConfigError, DataError
from bireme.node.cells import Cell
from bireme.node.partials import DensePartial, RowsPartial
from bireme.update import Layout, OptimizerRunner, Update, spec_of

__all__ = ("StoreUpdater",)


class StoreUpdater:
    """Applies rounds' sums to slots with one optimizer, and keeps its state for each slot.

    Args:
        body: What ``to_body`` made: a class of ``torch.optim`` and plain numbers.

    Raises:
        ConfigError: No such optimizer, or a number that it cannot use.
    """

    def __init__(self, body: Mapping[str, object]) -> None:
        spec_of(body, None)
        self._body = dict(body)
        self._runners: dict[int, OptimizerRunner] = {}

    def replace(self, body: Mapping[str, object]) -> bool:
        """Take other numbers and keep the state, if the class is the same; else change nothing."""
        spec_of(body, None)
        if body.get("name") != self._body.get("name"):
            return False
        fresh = {key_id: OptimizerRunner(spec_of(body, key_id)) for key_id in self._runners}
        for key_id, runner in fresh.items():
            self._runners[key_id].take_over(runner)
        self._body = dict(body)
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
        self._runner(key_id).apply([Update(index, _gradient(param, total), param)])
        cell.changed()

    def save(self) -> bytes:
        """Return the state of every slot, as safetensors named ``key.slot.name``."""
        tensors = {
            f"{key_id}.{index}.{name}": torch.as_tensor(value).clone()
            for key_id, runner in self._runners.items()
            for index, state in runner.states().items()
            for name, value in state.items()
            if value is not None
        }
        return bytes(save(tensors))

    def load(self, raw: bytes, cells: Mapping[tuple[int, int], Cell]) -> None:
        """Replace all state by what ``save`` made.

        Args:
            raw: The bytes.
            cells: The slots of this server.

        Raises:
            DataError: The bytes are no such state.
            ConfigError: They name a slot that this server does not hold.
        """
        try:
            named = [(_slot_of(name), tensor) for name, tensor in load(raw).items()]
        except (SafetensorError, ValueError) as error:
            raise DataError(f"the optimizer state is unreadable: {error}") from error
        states: dict[int, dict[int, dict[str, object]]] = {}
        for (key_id, index, what), tensor in named:
            if (key_id, index) not in cells:
                raise ConfigError(f"slot {key_id}.{index} is not here; initialise its key first")
            states.setdefault(key_id, {}).setdefault(index, {})[what] = tensor
        for key_id, slots in states.items():
            stored = {index: cells[key_id, index].parameter() for index in slots}
            self._runner(key_id).load_states(
                {index: state for index, state in slots.items()},
                {index: param for index, param in stored.items()},
            )

    def _runner(self, key_id: int) -> OptimizerRunner:
        runner = self._runners.get(key_id)
        if runner is None:
            runner = OptimizerRunner(spec_of(self._body, key_id))
            self._runners[key_id] = runner
        return runner


def _gradient(param: torch.Tensor, total: DensePartial | RowsPartial) -> torch.Tensor:
    if isinstance(total, DensePartial):
        return total.tensor.view(param.shape)
    values = total.rows.view(len(total.ids), *param.shape[1:])
    return torch.sparse_coo_tensor(
        total.ids[None], values, param.shape, is_coalesced=True, check_invariants=False
    )


def _slot_of(name: str) -> tuple[int, int, str]:
    key_id, index, what = name.split(".", 2)
    return int(key_id), int(index), what
