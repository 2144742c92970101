"""Several slots of a server in one run of memory: what a group of slots computes on."""

from collections.abc import Callable, Iterator, Sequence

import torch

from bireme.node.cells import Cell
from bireme.node.partials import DensePartial, SlotShape
from bireme.transport.base import Buffer

__all__ = ("JoinedCell",)


class JoinedCell(Cell):
    """A cell that stands for several, whose values lie side by side in it.

    Args:
        members: Cells of one element type that no optimizer changes. They have no memory until
            :meth:`part`.
        allocate: Makes memory that frames can be sent from.
    """

    __slots__ = ("_members",)

    def __init__(self, members: Sequence[Cell], allocate: Callable[[int], Buffer]) -> None:
        first = members[0]
        length = sum([cell.shape.length for cell in members])
        super().__init__(
            first.store, first.slot, SlotShape(first.shape.dtype, length, 1), None, allocate
        )
        self._members = tuple(members)
        for cell, target in self._cut(self.value):
            target.copy_(cell.value)
            cell.lend()

    def part(self, partials: Sequence[DensePartial]) -> list[list[DensePartial]]:
        """Give the members their values back, and cut sums into theirs. All memory is copied.

        Args:
            partials: Sums of the whole; used up.
        """
        for cell, source in self._cut(self.value):
            cell.take_back(source)
        self.free()
        return [self._parts(partial) for partial in partials]

    def _parts(self, partial: DensePartial) -> list[DensePartial]:
        parts = []
        for cell, source in self._cut(partial.tensor):
            part = DensePartial.alone(cell.shape, self._allocate)
            part.tensor.copy_(source)
            parts.append(part)
        partial.free()
        return parts

    def _cut(self, flat: torch.Tensor) -> Iterator[tuple[Cell, torch.Tensor]]:
        sizes = [cell.shape.length for cell in self._members]
        return zip(self._members, torch.split(flat, sizes), strict=True)
