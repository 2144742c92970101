"""A server's arithmetic over torch: what `bireme.core.server` is given to compute with."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, cast

import torch

from bireme.core.values import Answer
from bireme.node.cells import Cell
from bireme.node.checks import (
    check_dense,
    check_first,
    check_row_numbers,
    check_rows,
    torch_dtype,
)
from bireme.node.commands import StoreCommands
from bireme.node.encodings import RAW
from bireme.node.joined import JoinedCell
from bireme.node.memory import Held, bytes_of, received_bytes, tensor_over
from bireme.node.partials import SMALL_BYTES, DensePartial, RowsPartial, SlotShape, is_rows
from bireme.node.reads import Reads
from bireme.node.sheets import Sheets
from bireme.transport.base import Buffer, ReceivedFrame
from bireme.types.choices import Layout
from bireme.wire.messages import CommandKind, InitEntry, PushEntry

if TYPE_CHECKING:
    from bireme.node.tickets import Slot

__all__ = ("TorchSlotValues",)


class TorchSlotValues:
    """Holds a server's slots as tensors, adds to them, and runs optimizers on them.

    Args:
        allocate: Makes memory that frames can be sent from with the fewest copies
            (`bireme.transport.base.Transport.allocate`).
        allowed_optimizers: What may be imported as an optimizer, besides those of `torch.optim`:
            modules, and single classes as ``module:Class``.

    Guarantees:
        Those of `bireme.core.values.SlotValues`. Without an optimizer it holds, besides the
        values, only the sums of open rounds.
    """

    def __init__(
        self, allocate: Callable[[int], Buffer], allowed_optimizers: Collection[str] = ()
    ) -> None:
        self._allocate = allocate
        self._sheets = Sheets(allocate)
        self._cells: dict[Slot, Cell] = {}
        self._commands = StoreCommands(self._cells, allowed_optimizers)
        self._updaters = self._commands.updaters
        self._reads = Reads()

    def check_init(self, entry: InitEntry) -> None:
        """Raise unless ``initialise`` can take ``entry``."""
        check_first(entry)

    def initialise(
        self, store: int, entry: InitEntry, payload: object, offset_bytes: int
    ) -> object:
        """Return the cell of a new slot with its first value."""
        dtype = torch_dtype(entry.dtype)
        shape = SlotShape(dtype, entry.length, entry.row_length)
        slot = (entry.key_id, entry.index)
        cell = Cell(store, slot, shape, entry.shape, self._allocate)
        if entry.payload_bytes:
            cell.fill(tensor_over(received_bytes(payload), dtype, entry.length, offset_bytes))
        else:
            cell.fill(None)
        self._cells[slot] = cell
        return cell

    def can_update(self, store: int) -> bool:
        """Return whether an optimizer applies the pushes of this store."""
        return store in self._updaters

    def check_push(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int
    ) -> None:
        """Raise unless ``first`` and ``add`` can take this contribution."""
        slot: Cell = cell  # type: ignore[assignment]
        shape = slot.shape
        if (
            entry.payload_bytes == shape.size_bytes
            and entry.encoding == RAW
            and entry.layout is Layout.DENSE
        ):
            pass
        elif is_rows(entry):
            check_rows(shape, entry, received_bytes(payload), offset_bytes)
        else:
            check_dense(shape, entry)
        updater = self._updaters.get(slot.store)
        if updater is not None:
            updater.check(slot, rows=is_rows(entry))

    def first(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int, weight: float
    ) -> object:
        """Return a partial that is this contribution times ``weight``."""
        slot: Cell = cell  # type: ignore[assignment]
        shape = slot.shape
        view = received_bytes(payload)
        if is_rows(entry):
            return RowsPartial.of(entry, view, offset_bytes, weight, shape)
        partial = slot.take_spare()
        if partial is None and weight == 1.0:
            partial = _adopted(shape, entry, payload)
            if partial is not None:
                return partial
        if partial is None:
            partial = self._begin(shape, entry, payload, offset_bytes)
        partial.take(entry, view, offset_bytes, weight)
        return partial

    def _begin(
        self, shape: SlotShape, entry: PushEntry, payload: object, offset_bytes: int
    ) -> DensePartial:
        """Return a sum in memory beside those of the message's other slots, if it fits there."""
        fits = entry.encoding == RAW and shape.sum_dtype is shape.dtype
        if not fits or offset_bytes % shape.dtype.itemsize:
            return DensePartial.alone(shape, self._allocate)
        size_bytes = len(received_bytes(payload))
        memory = self._sheets.part(payload, size_bytes, offset_bytes, entry.payload_bytes)
        return DensePartial(shape, memory)

    def add(
        self,
        cell: object,
        partial: object,
        entry: PushEntry,
        payload: object,
        offset_bytes: int,
        weight: float,
    ) -> object:
        """Return ``partial`` plus this contribution times ``weight``."""
        mine: DensePartial | RowsPartial = partial  # type: ignore[assignment]
        view = received_bytes(payload)
        if isinstance(mine, DensePartial) and not is_rows(entry):
            mine.add(entry, view, offset_bytes, weight)
            return mine
        if is_rows(entry):
            theirs = RowsPartial.of(entry, view, offset_bytes, weight, mine.shape)
            return self.merge(mine, theirs)
        dense = DensePartial.alone(mine.shape, self._allocate)
        dense.take(entry, view, offset_bytes, weight)
        return self.merge(dense, mine)

    def merge(self, partial: object, other: object) -> object:
        """Return the sum of two partials of one slot."""
        one = cast("DensePartial | RowsPartial", partial)
        two = cast("DensePartial | RowsPartial", other)
        if isinstance(one, RowsPartial) and isinstance(two, RowsPartial):
            return one.plus(two)
        if isinstance(one, RowsPartial):
            one, two = two, one
        dense = cast("DensePartial", one)
        dense.code = (
            dense.code if isinstance(two, DensePartial) and dense.code == two.code else None
        )
        if isinstance(two, RowsPartial):
            two.add_to(dense.tensor)
        else:
            dense.tensor.add_(two.tensor)
            two.free()
        return dense

    def seen(self, cell: object, rank: int, version: int) -> None:
        """Keep what ``rank`` is being sent, where the optimizer needs to know it."""
        slot = cast("Cell", cell)
        updater = self._updaters.get(slot.store)
        if updater is not None and updater.compensation:
            self._reads.keep(slot, rank)

    def corrected(self, cell: object, total: object, rank: int) -> object:
        """Return a contribution, compensated for what the value has become since it was read."""
        slot = cast("Cell", cell)
        updater = self._updaters.get(slot.store)
        if updater is not None and updater.compensation:
            partial = cast("DensePartial | RowsPartial", total)
            self._reads.compensate(slot, rank, partial, updater.compensation)
        return total

    def finish(
        self, cell: object, total: object, numerator: float, denominator: float, version: int
    ) -> None:
        """Make the sum of a round the slot's value, or give it to the optimizer."""
        slot: Cell = cell  # type: ignore[assignment]
        partial: DensePartial | RowsPartial = total  # type: ignore[assignment]
        if not numerator == denominator == 1.0:
            partial.scale(numerator, denominator)
        updater = self._updaters.get(slot.store)
        if updater is not None:
            if numerator:
                updater.apply(slot, partial)
            partial.free()
            return
        slot.assign(partial if isinstance(partial, DensePartial) else self._spread(partial))

    def _spread(self, rows: RowsPartial) -> DensePartial:
        dense = DensePartial.alone(rows.shape, self._allocate)
        dense.tensor.zero_()
        rows.add_to(dense.tensor)
        return dense

    def join(self, cells: Sequence[object]) -> object | None:
        """Return one cell that stands for several, or ``None``."""
        members = cast("Sequence[Cell]", cells)
        first = members[0]
        if first.store in self._updaters or any(
            cell.param is not None or cell.shape.dtype is not first.shape.dtype for cell in members
        ):
            return None
        return JoinedCell(members, self._allocate)

    def part(self, cell: object, partials: Sequence[object]) -> list[list[object]]:
        """End what ``join`` made."""
        parts = cast("JoinedCell", cell).part(cast("Sequence[DensePartial]", partials))
        return cast("list[list[object]]", parts)

    def read(self, cell: object) -> tuple[object, int, str]:
        """Return a handle of the current value's bytes, their number and their encoding."""
        slot: Cell = cell  # type: ignore[assignment]
        coded = slot.coded
        if coded is not None:
            return coded[1], len(coded[1].view), coded[0]
        held = slot.read()
        return held, len(held.view), RAW

    def read_rows(self, cell: object, payload: object, num_ids: int) -> tuple[object, int]:
        """Return a handle of some rows' bytes and their number."""
        slot = cast("Cell", cell)
        ids = tensor_over(received_bytes(payload), torch.int64, num_ids)
        check_row_numbers(slot.shape, ids)
        rows = slot.value.view(slot.shape.num_rows, slot.shape.row_length)[ids]
        raw = rows.reshape(-1)
        return Held(bytes_of(raw)), raw.nbytes

    def command(
        self, store: int, command: CommandKind, body: dict[str, object], payload: object
    ) -> Answer:
        """Do what a worker asked for and return the answer."""
        return self._commands.obey(store, command, body, received_bytes(payload))

    def report(self) -> dict[str, object]:
        """Return nothing: the state machine knows what there is to tell."""
        return {}


def _adopted(shape: SlotShape, entry: PushEntry, payload: object) -> DensePartial | None:
    """Return a sum in the very memory in which its first contribution has come, if that can be."""
    if (
        shape.size_bytes <= SMALL_BYTES
        or shape.sum_dtype is not shape.dtype
        or entry.encoding != RAW
        or not isinstance(payload, ReceivedFrame)
        or len(payload.payload) != shape.size_bytes
    ):
        return None
    buffer = payload.adopt()
    return None if buffer is None else DensePartial(shape, Held(buffer.view, buffer.release))
