"""Steps the tables of a model and its replicas; the hand of :class:`bireme.Trainer` on them."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from bireme.errors import UnsupportedError
from bireme.kvstore.tables import Table
from bireme.nn.embedding import ShardedEmbedding
from bireme.nn.gradients import merged
from bireme.update import OptimizerSpec

__all__ = ("TableSteps",)


class TableSteps:
    """Pushes what the backward passes of several replicas have left, once for each table.

    Args:
        replicas: Copies of one model, which share its tables.
        optimizer: The trainer's; tables without an optimizer of their own follow its first group.

    Raises:
        UnsupportedError: A table follows an optimizer that servers cannot run.
    """

    def __init__(self, replicas: Sequence[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._layers: dict[Table, list[tuple[int, ShardedEmbedding]]] = {}
        for number, replica in enumerate(replicas):
            for layer in _layers(replica):
                self._layers.setdefault(layer.table, []).append((number, layer))
        self._told: dict[Table, dict[str, object]] = {}
        self._follow()

    def __bool__(self) -> bool:
        return bool(self._layers)

    def push(self, counts: Sequence[float], scale: float = 1.0) -> None:
        """Push gradients and return at once; without any, push that there are none.

        Args:
            counts: Samples behind each replica's gradients.
            scale: What gradients were multiplied by, for example by a ``GradScaler``.
        """
        self._follow()
        total = sum(counts)
        for table, layers in self._layers.items():
            shares = [counts[number] / (total or 1.0) / scale for number, _ in layers]
            parts = [
                (layer.collected.take_parts(), share)
                for (_, layer), share in zip(layers, shares, strict=True)
            ]
            table.push_dealt(*merged(table, [each for each in parts if each[1]]), float(total))

    def clear(self) -> None:
        """Forget all gradients that were not pushed."""
        for layers in self._layers.values():
            for _, layer in layers:
                layer.collected.clear()

    def _follow(self) -> None:
        """Tell the servers numbers of the trainer's optimizer that have changed."""
        for table, layers in self._layers.items():
            if not all(layer.follows_trainer for _, layer in layers):
                continue
            numbers = _numbers(self._optimizer.param_groups[0])
            if numbers != self._told.get(table):
                table.set_optimizer(_spec(self._optimizer, table))
                self._told[table] = numbers


def _layers(module: nn.Module) -> Iterable[ShardedEmbedding]:
    return (each for each in module.modules() if isinstance(each, ShardedEmbedding))


def _numbers(group: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params"
    }


def _spec(optimizer: torch.optim.Optimizer, table: Table) -> OptimizerSpec:
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    try:
        spec = OptimizerSpec.from_optimizer(optimizer, range(count))
        return OptimizerSpec(spec.name, spec.params)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"table {table.options.name!r} follows the trainer's optimizer, and {error}; or give "
            "the ShardedEmbedding an optimizer of its own"
        ) from error
