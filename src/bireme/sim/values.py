"""The server's arithmetic over lists of Python floats: the simulator's ``SlotValues``.

A payload is ``bytes`` of packed float64; row numbers are packed int64. The optimizer is one line:
``value += rate * total``; without one the total replaces the value.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence

from bireme.core.values import Answer
from bireme.errors import ConfigError, StateError
from bireme.types.choices import Layout
from bireme.wire.messages import CommandKind, InitEntry, PushEntry

__all__ = ("Cell", "FloatValues", "Joined", "cut_payload", "pack", "unpack")

_ITEM_BYTES = 8


def pack(numbers: list[float]) -> bytes:
    """Return the payload of ``numbers``.

    Example:
        >>> unpack(pack([1.0, 2.5]))
        [1.0, 2.5]
    """
    return struct.pack(f"<{len(numbers)}d", *numbers)


def unpack(payload: object, offset_bytes: int = 0, size_bytes: int | None = None) -> list[float]:
    """Return the numbers in a part of a payload."""
    assert isinstance(payload, bytes)
    size = len(payload) - offset_bytes if size_bytes is None else size_bytes
    return list(struct.unpack_from(f"<{size // _ITEM_BYTES}d", payload, offset_bytes))


def cut_payload(payload: object, sizes: Sequence[int]) -> list[bytes]:
    """Return the parts of a payload.

    Example:
        >>> cut_payload(b"abc", (1, 2))
        [b'a', b'bc']
    """
    assert isinstance(payload, bytes)
    ends = list(itertools.accumulate(sizes))
    return [payload[end - size : end] for end, size in zip(ends, sizes, strict=True)]


class Cell:
    """The value of one slot."""

    __slots__ = ("packed", "row_length", "slot", "store", "value")

    def __init__(
        self, slot: tuple[int, int], store: int, value: list[float], row_length: int
    ) -> None:
        self.slot = slot
        self.store = store
        self.value = value
        self.row_length = row_length
        self.packed: bytes | None = None


class Joined(Cell):
    """Several slots as one. Their cells are kept up to date, for tests to look at."""

    __slots__ = ("members",)

    def __init__(self, members: Sequence[Cell]) -> None:
        value = [number for cell in members for number in cell.value]
        super().__init__(members[0].slot, members[0].store, value, 1)
        self.members = tuple(members)

    def cut(self, numbers: object) -> Iterator[list[float]]:
        """Yield the part of each member."""
        assert isinstance(numbers, list)
        start = 0
        for cell in self.members:
            yield numbers[start : start + len(cell.value)]
            start += len(cell.value)


class FloatValues:
    """``SlotValues`` over lists of floats."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], Cell] = {}
        self.rates: dict[int, float] = {}
        """By store: the optimizer's rate, once it is set."""
        self.commands: list[dict[str, object]] = []
        """Bodies of the commands that were carried out."""
        self.history: dict[tuple[int, int], list[list[float]]] = {}
        """By slot: the total of each round, before it is scaled."""
        self.keep_history = False
        self.num_joined = 0
        """Groups of slots so far."""
        self.num_taken = 0
        """Contributions taken in so far."""
        self.num_partials = 0
        """Partial sums that are held now."""
        self.most_partials = 0

    def check_init(self, entry: InitEntry) -> None:
        """Raise unless the size fits the length."""
        if entry.payload_bytes not in (0, entry.length * _ITEM_BYTES):
            raise ConfigError(f"{entry.payload_bytes} bytes are no {entry.length} numbers")

    def initialise(self, store: int, entry: InitEntry, payload: object, offset_bytes: int) -> Cell:
        """Return the cell of a new slot."""
        value = [0.0] * entry.length
        if entry.payload_bytes:
            value = unpack(payload, offset_bytes, entry.payload_bytes)
        slot = (entry.key_id, entry.index)
        cell = self.cells[slot] = Cell(slot, store, value, entry.row_length)
        return cell

    def can_update(self, store: int) -> bool:
        """Return whether an optimizer is set."""
        return store in self.rates

    def check_push(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int
    ) -> None:
        """Raise unless the entry has the slot's size, or rows that the slot has."""
        assert isinstance(cell, Cell)
        size = len(cell.value) * _ITEM_BYTES
        if entry.layout is Layout.ROWS:
            size = entry.num_rows * (1 + cell.row_length) * _ITEM_BYTES
            _check_rows(_ids(payload, offset_bytes, entry.num_rows), cell)
        if entry.payload_bytes != size:
            raise ConfigError(f"the slot takes {size} bytes, got {entry.payload_bytes}")

    def first(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int, weight: float
    ) -> list[float]:
        """Return a new partial."""
        assert isinstance(cell, Cell)
        self.num_taken += 1
        self.num_partials += 1
        self.most_partials = max(self.most_partials, self.num_partials)
        return _decoded(cell, entry, payload, offset_bytes, weight)

    def add(
        self,
        cell: object,
        partial: object,
        entry: PushEntry,
        payload: object,
        offset_bytes: int,
        weight: float,
    ) -> list[float]:
        """Return the partial with one more contribution."""
        assert isinstance(cell, Cell)
        assert isinstance(partial, list)
        self.num_taken += 1
        more = _decoded(cell, entry, payload, offset_bytes, weight)
        return [a + b for a, b in zip(partial, more, strict=True)]

    def merge(self, partial: object, other: object) -> list[float]:
        """Return the sum of two partials."""
        assert isinstance(partial, list)
        assert isinstance(other, list)
        self.num_partials -= 1
        return [a + b for a, b in zip(partial, other, strict=True)]

    def seen(self, cell: object, rank: int, version: int) -> None:
        """Do nothing: nothing is corrected."""

    def corrected(self, cell: object, total: object, rank: int) -> object:
        """Return the contribution as it is."""
        return total

    def finish(
        self, cell: object, total: object, numerator: float, denominator: float, version: int
    ) -> None:
        """Assign the total, or add it times the rate."""
        assert isinstance(cell, Cell)
        assert isinstance(total, list)
        self.num_partials -= 1
        members = cell.members if isinstance(cell, Joined) else (cell,)
        if self.keep_history:
            for member, part in zip(members, _cut(cell, total), strict=True):
                self.history.setdefault(member.slot, []).append(part)
        if numerator != 1.0:
            total = [each * numerator for each in total]
        if denominator != 1.0:
            total = [each / denominator for each in total]
        rate = self.rates.get(cell.store)
        if rate is not None and not numerator:
            return
        if rate is not None:
            total = [a + rate * b for a, b in zip(cell.value, total, strict=True)]
        for member, part in zip(members, _cut(cell, total), strict=True):
            member.value, member.packed = part, None
        cell.value, cell.packed = total, None

    def join(self, cells: Sequence[object]) -> "Joined | None":
        """Return a cell that stands for several; the rule treats each number alike."""
        members = [cell for cell in cells if isinstance(cell, Cell)]
        self.num_joined += 1
        return Joined(members)

    def part(self, cell: object, partials: Sequence[object]) -> list[list[object]]:
        """End it."""
        assert isinstance(cell, Joined)
        self.num_partials += len(partials) * (len(cell.members) - 1)
        return [list(cell.cut(partial)) for partial in partials]

    def read(self, cell: object) -> tuple[bytes, int, str]:
        """Return the packed value."""
        assert isinstance(cell, Cell)
        if cell.packed is None:
            cell.packed = pack(cell.value)
        return cell.packed, len(cell.packed), "raw"

    def read_rows(self, cell: object, payload: object, num_ids: int) -> tuple[bytes, int]:
        """Return the packed rows."""
        assert isinstance(cell, Cell)
        ids = _ids(payload, 0, num_ids) if num_ids else ()
        _check_rows(ids, cell)
        width = cell.row_length
        rows = pack([x for row in ids for x in cell.value[row * width : (row + 1) * width]])
        return rows, len(rows)

    def report(self) -> dict[str, object]:
        """Return nothing: a scenario looks at the fields."""
        return {}

    def command(
        self, store: int, command: CommandKind, body: dict[str, object], payload: object
    ) -> Answer:
        """Set the rate, or save and load it."""
        if command in (CommandKind.SET_OPTIMIZER, CommandKind.SET_HYPER_PARAMETERS):
            rate = body.get("rate")
            if not isinstance(rate, float):
                raise ConfigError(f"the rate must be a number, got {rate!r}")
            if command is CommandKind.SET_HYPER_PARAMETERS and store not in self.rates:
                raise StateError("no optimizer is set; call set_optimizer first")
            self.rates[store] = rate
        elif command is CommandKind.SAVE_STATE:
            saved = pack([self.rates.get(store, 0.0)])
            return {}, saved, len(saved)
        elif command is CommandKind.LOAD_STATE:
            self.rates[store] = unpack(payload)[0]
        self.commands.append(body)
        return {}, None, 0


def _cut(cell: Cell, numbers: list[float]) -> list[list[float]]:
    return list(cell.cut(numbers)) if isinstance(cell, Joined) else [numbers]


def _decoded(
    cell: Cell, entry: PushEntry, payload: object, offset_bytes: int, weight: float
) -> list[float]:
    if entry.layout is Layout.ROWS:
        ids = _ids(payload, offset_bytes, entry.num_rows)
        start = offset_bytes + entry.num_rows * _ITEM_BYTES
        rows = unpack(payload, start, entry.num_rows * cell.row_length * _ITEM_BYTES)
        values = [0.0] * len(cell.value)
        for position, row in enumerate(ids):
            for column in range(cell.row_length):
                values[row * cell.row_length + column] += rows[position * cell.row_length + column]
    else:
        values = unpack(payload, offset_bytes, entry.payload_bytes)
    return values if weight == 1.0 else [weight * each for each in values]


def _ids(payload: object, offset_bytes: int, number: int) -> tuple[int, ...]:
    assert isinstance(payload, bytes)
    return struct.unpack_from(f"<{number}q", payload, offset_bytes)


def _check_rows(ids: tuple[int, ...], cell: Cell) -> None:
    number = len(cell.value) // cell.row_length
    for row in ids:
        if not 0 <= row < number:
            raise ConfigError(f"row {row} is out of range for {number} rows")
