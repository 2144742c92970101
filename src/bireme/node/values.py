"""A server's arithmetic over torch: what `bireme.core.server` is given to compute with."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

import torch

from bireme.core.values import Answer
from bireme.errors import BiremeError, ConfigError, StateError, UnsupportedError
from bireme.node.cells import Cell
from bireme.node.encodings import RAW, SUM, decoder
from bireme.node.joined import JoinedCell
from bireme.node.memory import Held, bytes_of, tensor_over
from bireme.node.partials import (
    SMALL_BYTES,
    DensePartial,
    RowsPartial,
    SlotShape,
    is_rows,
    read_rows,
)
from bireme.node.pieces import by_name, pack, unpack
from bireme.node.reads import Reads
from bireme.node.sheets import Sheets
from bireme.node.tickets import Slot
from bireme.node.updates import StoreUpdater
from bireme.transport.base import Buffer, ReceivedFrame
from bireme.types.choices import Layout
from bireme.update import state_folders
from bireme.update import states as state_files
from bireme.wire.messages import CommandKind, InitEntry, PushEntry

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
        self._allowed = frozenset(allowed_optimizers)
        self._sheets = Sheets(allocate)
        self._updaters: dict[int, StoreUpdater] = {}
        self._cells: dict[tuple[int, int], Cell] = {}
        self._reads = Reads()

    def check_init(self, entry: InitEntry) -> None:
        """Raise unless ``initialise`` can take ``entry``."""
        size_bytes = entry.length * _torch_dtype(entry.dtype).itemsize
        if entry.payload_bytes not in (0, size_bytes):
            raise ConfigError(
                f"slot {entry.key_id}.{entry.index} of {entry.length} {entry.dtype} was given "
                f"{entry.payload_bytes} bytes instead of {size_bytes}"
            )
        if entry.length % entry.row_length if entry.row_length else entry.length:
            raise ConfigError(
                f"slot {entry.key_id}.{entry.index}: {entry.length} elements are no whole number "
                f"of rows of {entry.row_length}"
            )

    def initialise(
        self, store: int, entry: InitEntry, payload: object, offset_bytes: int
    ) -> object:
        """Return the cell of a new slot with its first value."""
        dtype = _torch_dtype(entry.dtype)
        shape = SlotShape(dtype, entry.length, entry.row_length)
        slot = (entry.key_id, entry.index)
        cell = Cell(store, slot, shape, entry.shape, self._allocate)
        if entry.payload_bytes:
            cell.fill(tensor_over(_bytes(payload), dtype, entry.length, offset_bytes))
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
            _check_rows(slot.shape, entry, payload, offset_bytes)
        else:
            _check_dense(slot.shape, entry)
        updater = self._updaters.get(slot.store)
        if updater is not None:
            updater.check(slot, rows=is_rows(entry))

    def first(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int, weight: float
    ) -> object:
        """Return a partial that is this contribution times ``weight``."""
        slot: Cell = cell  # type: ignore[assignment]
        shape = slot.shape
        view = _bytes(payload)
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
        size_bytes = len(_bytes(payload))
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
        view = _bytes(payload)
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
        ids = tensor_over(_bytes(payload), torch.int64, num_ids)
        _check_row_numbers(slot.shape, ids)
        rows = slot.value.view(slot.shape.num_rows, slot.shape.row_length)[ids]
        raw = rows.reshape(-1)
        return Held(bytes_of(raw)), raw.nbytes

    def command(
        self, store: int, command: CommandKind, body: dict[str, object], payload: object
    ) -> Answer:
        """Do what a worker asked for and return the answer."""
        try:
            return self._obey(store, command, body, payload)
        except BiremeError:
            raise
        except OSError as error:
            raise StateError(f"a server cannot write what it holds: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            # A worker's mistake must not end a server.
            text = f"the command {command.value!r} was sent with what it cannot use: {error!r}"
            raise ConfigError(text) from error

    def _obey(
        self, store: int, command: CommandKind, body: dict[str, object], payload: object
    ) -> Answer:
        if command is CommandKind.SET_OPTIMIZER:
            self._set_optimizer(store, body)
            return {}, None, 0
        if command is CommandKind.SAVE_STATE and "folder" in body:
            return {"file": self._save_part(store, body)}, None, 0
        if command is CommandKind.SAVE_STATE:
            raw = pack(self._updater(store).states(_slots(body)))
            return {}, Held(memoryview(raw)), len(raw)
        if command is CommandKind.LOAD_STATE:
            self._load(store, body, _bytes(payload))
            return {}, None, 0
        raise UnsupportedError(f"this server does not know the command {command.value!r}")

    def report(self) -> dict[str, object]:
        """Return nothing: the state machine knows what there is to tell."""
        return {}

    def _set_optimizer(self, store: int, body: Mapping[str, object]) -> None:
        updater = self._updaters.get(store)
        if not body:
            self._updaters.pop(store, None)
            for cell in self._cells.values():
                if cell.store == store:
                    cell.drop_parameter()
        elif updater is None or not updater.replace(body):
            self._updaters[store] = StoreUpdater(body, self._allowed)

    def _save_part(self, store: int, body: Mapping[str, object]) -> str:
        updater = self._updater(store)
        mine = frozenset(slot for slot, cell in self._cells.items() if cell.store == store)
        states = by_name(updater.states(mine))
        return state_folders.write_part(
            cast("str", body["folder"]),
            cast("str", body["token"]),
            lambda path: state_files.save(path, updater.spec, states),
        )

    def _load(self, store: int, body: Mapping[str, object], payload: memoryview) -> None:
        mine = {slot: cell for slot, cell in self._cells.items() if cell.store == store}
        states = unpack(bytes(payload)) if payload else {}
        if body.get("values"):
            _overwrite(mine, states)
            return
        updater = self._updater(store)
        if body.get("first"):
            updater.forget_states()
        updater.add_states(states, mine)

    def _updater(self, store: int) -> StoreUpdater:
        updater = self._updaters.get(store)
        if updater is None:
            raise StateError(
                "the servers run no optimizer, so there is no state; call set_optimizer first"
            )
        return updater


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


def _overwrite(cells: Mapping[Slot, Cell], values: Mapping[Slot, Mapping[str, object]]) -> None:
    for slot, value in values.items():
        if (
            slot not in cells
            or len(cast("torch.Tensor", value["value"])) != cells[slot].shape.length
        ):
            raise ConfigError(f"slot {slot[0]}.{slot[1]} is not here, or of another length")
    for slot, value in values.items():
        cells[slot].overwrite(cast("torch.Tensor", value["value"]))


def _slots(body: Mapping[str, object]) -> frozenset[Slot]:
    try:
        return frozenset((int(key_id), int(index)) for key_id, index in body["slots"])  # type: ignore[attr-defined]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"a request for states that cannot be read: {error!r}") from error


def _bytes(payload: object) -> memoryview:
    return memoryview(b"") if payload is None else payload.payload  # type: ignore[attr-defined]


def _torch_dtype(name: str) -> torch.dtype:
    return cast("torch.dtype", getattr(torch, name))


def _check_dense(shape: SlotShape, entry: PushEntry) -> None:
    if entry.encoding == RAW:
        expected = shape.length * shape.dtype.itemsize
    elif entry.encoding == SUM:
        expected = shape.length * shape.sum_dtype.itemsize
    else:
        if shape.dtype is not torch.float32:
            raise UnsupportedError(
                f"a {entry.encoding} push fits float32 keys only, and this one holds {shape.dtype}"
            )
        expected = decoder(entry.encoding).payload_bytes(shape.length)
    if entry.payload_bytes != expected:
        raise ConfigError(
            f"slot {entry.key_id}.{entry.index}: a {entry.encoding} push of {shape.length} "
            f"{shape.dtype} has {expected} bytes, and this one {entry.payload_bytes}"
        )


def _check_rows(shape: SlotShape, entry: PushEntry, payload: object, offset_bytes: int) -> None:
    expected = entry.num_rows * (8 + shape.row_length * shape.dtype.itemsize)
    if entry.encoding != RAW or entry.payload_bytes != expected:
        raise ConfigError(
            f"slot {entry.key_id}.{entry.index}: {entry.num_rows} raw rows have {expected} bytes, "
            f"and this {entry.encoding} push {entry.payload_bytes}"
        )
    ids, _ = read_rows(entry, _bytes(payload), offset_bytes, shape)
    _check_row_numbers(shape, ids)


def _check_row_numbers(shape: SlotShape, ids: torch.Tensor) -> None:
    if len(ids) == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= shape.num_rows:
        raise ConfigError(
            f"row numbers run from {low} to {high}, but the slot has rows 0 to {shape.num_rows - 1}"
        )
