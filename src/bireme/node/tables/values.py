"""A server's arithmetic with tables: passes what is no table's to the arithmetic of plain keys."""

from collections.abc import Collection, Sequence
from typing import cast

from bireme.core.values import Answer, SlotValues
from bireme.errors import ConfigError, UnsupportedError
from bireme.node.encodings import RAW
from bireme.node.memory import Held, received_bytes
from bireme.node.tables.cell import DTYPES, TableCell
from bireme.node.tables.files import TableFiles
from bireme.node.tables.partial import TablePartial
from bireme.types.choices import Layout
from bireme.update import spec_of
from bireme.wire.messages import CommandKind, InitEntry, PushEntry
from bireme.wire.tables import decode_table

__all__ = ("WithTables",)

_DIRECT = ("check_push", "first", "add", "merge", "finish", "read")
"""What goes to plain slots without a detour as long as there is no table: all of every step."""


class WithTables:
    """`SlotValues` of slots that are tables, around those of all others.

    Args:
        others: Computes on plain slots.
        allowed_optimizers: What may be imported, besides ``torch.optim``.

    Guarantees:
        Those of `bireme.core.values.SlotValues`. A read takes no memory and changes nothing.
    """

    def __init__(self, others: SlotValues, allowed_optimizers: Collection[str] = ()) -> None:
        self._others = others
        for name in _DIRECT:
            setattr(self, name, getattr(others, name))
        self._allowed = frozenset(allowed_optimizers)
        self._tables: dict[int, TableCell] = {}
        self._files: dict[int, TableFiles] = {}

    def check_init(self, entry: InitEntry) -> None:
        """Raise unless ``initialise`` can take ``entry``."""
        if entry.layout is not Layout.TABLE:
            self._others.check_init(entry)
        elif entry.length or entry.dtype.value not in DTYPES:
            raise ConfigError(
                f"a table holds {' or '.join(DTYPES)} and no first values; slot {entry.key_id}."
                f"{entry.index} is {entry.length} {entry.dtype}"
            )

    def initialise(
        self, store: int, entry: InitEntry, payload: object, offset_bytes: int
    ) -> object:
        """Return the cell of a new slot with its first value."""
        if entry.layout is not Layout.TABLE:
            return self._others.initialise(store, entry, payload, offset_bytes)
        raw = received_bytes(payload)[offset_bytes : offset_bytes + entry.payload_bytes]
        if not self._tables:
            for name in _DIRECT:
                delattr(self, name)
        cell = TableCell(store, (entry.key_id, entry.index), decode_table(raw))
        self._tables[store] = cell
        return cell

    def can_update(self, store: int) -> bool:
        """Return whether an optimizer applies the pushes of this store."""
        table = self._tables.get(store)
        return self._others.can_update(store) if table is None else table.optimizer is not None

    def check_push(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int
    ) -> None:
        """Raise unless ``first`` and ``add`` can take this contribution."""
        if type(cell) is TableCell:
            cell.check_push(entry, received_bytes(payload), offset_bytes)
        else:
            self._others.check_push(cell, entry, payload, offset_bytes)

    def first(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int, weight: float
    ) -> object:
        """Return a partial that is this contribution times ``weight``."""
        if type(cell) is TableCell:
            return cell.first(entry, received_bytes(payload), offset_bytes, weight)
        return self._others.first(cell, entry, payload, offset_bytes, weight)

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
        if type(cell) is TableCell:
            mine = cell.first(entry, received_bytes(payload), offset_bytes, weight)
            return cast("TablePartial", partial).plus(mine)
        return self._others.add(cell, partial, entry, payload, offset_bytes, weight)

    def merge(self, partial: object, other: object) -> object:
        """Return the sum of two partials of one slot."""
        if isinstance(partial, TablePartial):
            return partial.plus(cast("TablePartial", other))
        return self._others.merge(partial, other)

    def finish(
        self, cell: object, total: object, numerator: float, denominator: float, version: int
    ) -> None:
        """Make the sum of a round the slot's value, or give it to the optimizer."""
        if type(cell) is TableCell:
            cell.finish(cast("TablePartial", total), numerator, denominator, version)
        else:
            self._others.finish(cell, total, numerator, denominator, version)

    def read(self, cell: object) -> tuple[object, int, str]:
        """Return a handle of the current value's bytes; of a table, which has no end, none."""
        if type(cell) is TableCell:
            return Held(memoryview(b"")), 0, RAW
        return self._others.read(cell)

    def read_rows(self, cell: object, payload: object, num_ids: int) -> tuple[object, int]:
        """Return a handle of some rows' bytes and their number."""
        if type(cell) is TableCell:
            return cell.read(received_bytes(payload), num_ids)
        return self._others.read_rows(cell, payload, num_ids)

    def seen(self, cell: object, rank: int, version: int) -> None:
        """Note that ``rank`` is being sent the current value; of no interest to a table."""
        if type(cell) is not TableCell:
            self._others.seen(cell, rank, version)

    def corrected(self, cell: object, total: object, rank: int) -> object:
        """Return a contribution as it should be applied; to a table, as it is."""
        return total if type(cell) is TableCell else self._others.corrected(cell, total, rank)

    def join(self, cells: Sequence[object]) -> object | None:
        """Return one cell that stands for several, none of which is a table."""
        if any(type(cell) is TableCell for cell in cells):
            return None
        return self._others.join(cells)

    def part(self, cell: object, partials: Sequence[object]) -> list[list[object]]:
        """End what ``join`` made."""
        return self._others.part(cell, partials)

    def command(
        self, store: int, command: CommandKind, body: dict[str, object], payload: object
    ) -> Answer:
        """Do what a worker asked for and return the answer."""
        table = self._tables.get(store)
        if table is None:
            return self._others.command(store, command, body, payload)
        if command is CommandKind.SET_OPTIMIZER:
            table.set_optimizer(spec_of(body, None, self._allowed))
            return {}, None, 0
        if command is CommandKind.TABLE:
            return self._files.setdefault(store, TableFiles(table)).command(body), None, 0
        raise UnsupportedError(f"a table does not know the command {command.value!r}")

    def report(self) -> dict[str, object]:
        """Return the counters of every table, and what the others report."""
        tables = [table.report() for table in self._tables.values()]
        return {**self._others.report(), **({"tables": tables} if tables else {})}
