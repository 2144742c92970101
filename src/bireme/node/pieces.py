"""State of slots on the way between a worker and a server.

The same bytes both ways: made by servers for ``SAVE_STATE`` and by workers for ``LOAD_STATE``.
"""

from collections.abc import Mapping

from bireme.errors import DataError
from bireme.node.tickets import Slot
from bireme.update import states as files

__all__ = ("pack", "unpack")


def pack(states: Mapping[Slot, Mapping[str, object]]) -> bytes:
    """Return what belongs to each slot (tensors and plain numbers by name) as bytes.

    Example:
        >>> unpack(pack({(3, 0): {"step": 2}}))
        {(3, 0): {'step': 2}}
    """
    return files.pack({f"{key_id}.{index}": state for (key_id, index), state in states.items()})


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
