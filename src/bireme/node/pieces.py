"""State of slots on the way between a worker and a server.

The same bytes both ways: made by servers for ``SAVE_STATE`` and by workers for ``LOAD_STATE``.
"""

from collections.abc import Mapping

from bireme.errors import DataError
from bireme.node.tickets import Slot
from bireme.types.keys import Key
from bireme.update import states as files

__all__ = ("by_name", "name_of", "pack", "unpack")


State = Mapping[str, object]


def pack(states: Mapping[Slot, State]) -> bytes:
    """Return what belongs to each slot (tensors and plain numbers by name) as bytes.

    Example:
        >>> unpack(pack({(3, 0): {"step": 2}}))
        {(3, 0): {'step': 2}}
    """
    return files.pack(by_name(states))


def by_name(states: Mapping[Slot, State]) -> dict[Key, State]:
    """Return what belongs to each slot under the slot's name.

    Example:
        >>> by_name({(3, 0): {"step": 2}})
        {'3.0': {'step': 2}}
    """
    return {name_of(slot): state for slot, state in states.items()}


def name_of(slot: Slot) -> str:
    """Return a slot's name in files and pieces."""
    return f"{slot[0]}.{slot[1]}"


def unpack(raw: bytes) -> dict[Slot, dict[str, object]]:
    """Read what :func:`pack` made.

    Raises:
        DataError: The bytes are something else.
    """
    try:
        return {_slot(str(name)): state for name, state in files.unpack(raw).items()}
    except ValueError as error:
        raise DataError(f"a piece of state does not name its slots: {error}") from error


def _slot(name: str) -> Slot:
    key_id, index = name.split(".")
    return int(key_id), int(index)
