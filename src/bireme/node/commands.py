"""Does what workers ask of a server for a whole store: run an optimizer, save and load its state.

:class:`~bireme.node.values.TorchSlotValues` calls it.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from bireme.core.values import Answer
from bireme.errors import BiremeError, ConfigError, StateError, UnsupportedError
from bireme.node.cells import Cell
from bireme.node.memory import Held
from bireme.node.pieces import by_name, pack, unpack
from bireme.node.tickets import Slot
from bireme.node.updates import StoreUpdater
from bireme.update import state_folders
from bireme.update import states as state_files
from bireme.wire.messages import CommandKind

if TYPE_CHECKING:
    import torch

__all__ = ("StoreCommands",)


class StoreCommands:
    """The optimizers of a server's stores.

    Args:
        cells: All slots of the server; whoever makes them keeps it up to date.
        allowed_optimizers: What may be imported as an optimizer, besides those of `torch.optim`.

    Attributes:
        updaters: The optimizer of each store that has one, by the store's number.
    """

    def __init__(
        self, cells: Mapping[Slot, Cell], allowed_optimizers: Collection[str] = ()
    ) -> None:
        self._cells = cells
        self._allowed = frozenset(allowed_optimizers)
        self.updaters: dict[int, StoreUpdater] = {}

    def obey(
        self, store: int, command: CommandKind, body: Mapping[str, object], payload: memoryview
    ) -> Answer:
        """Do what a worker asked for and return the answer.

        Args:
            store: The store's number.
            command: What to do.
            body: How.
            payload: What came with the command.

        Raises:
            BiremeError: It cannot be done. Whatever a worker sends raises nothing else.
        """
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
        self, store: int, command: CommandKind, body: Mapping[str, object], payload: memoryview
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
            self._load(store, body, payload)
            return {}, None, 0
        raise UnsupportedError(f"this server does not know the command {command.value!r}")

    def _set_optimizer(self, store: int, body: Mapping[str, object]) -> None:
        updater = self.updaters.get(store)
        if not body:
            self.updaters.pop(store, None)
            for cell in self._of(store).values():
                cell.drop_parameter()
        elif updater is None or not updater.replace(body):
            self.updaters[store] = StoreUpdater(body, self._allowed)

    def _save_part(self, store: int, body: Mapping[str, object]) -> str:
        updater = self._updater(store)
        states = by_name(updater.states(self._of(store).keys()))
        return state_folders.write_part(
            os.fsdecode(cast("bytes", body["folder"])),
            cast("str", body["token"]),
            lambda path: state_files.save(path, updater.spec, states),
        )

    def _load(self, store: int, body: Mapping[str, object], payload: memoryview) -> None:
        mine = self._of(store)
        states = unpack(bytes(payload)) if payload else {}
        if body.get("values"):
            _overwrite(mine, states)
            return
        updater = self._updater(store)
        if body.get("first"):
            updater.forget_states()
        updater.add_states(states, mine)

    def _of(self, store: int) -> dict[Slot, Cell]:
        return {slot: cell for slot, cell in self._cells.items() if cell.store == store}

    def _updater(self, store: int) -> StoreUpdater:
        updater = self.updaters.get(store)
        if updater is None:
            raise StateError(
                "the servers run no optimizer, so there is no state; call set_optimizer first"
            )
        return updater


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
        pairs = cast("Iterable[tuple[int, int]]", body["slots"])
        return frozenset((int(key_id), int(index)) for key_id, index in pairs)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"a request for states that cannot be read: {error!r}") from error
