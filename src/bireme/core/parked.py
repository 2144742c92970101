"""Pushes and pulls that reached a server before the first value of their slot did.

Called by :mod:`bireme.core.server`. They are kept, once each, until the slot is initialised; a
payload with several parked entries is held once and let go after the last of them.
"""

import msgspec

from bireme.core.slots import PullWait
from bireme.wire.messages import Push, PushEntry

__all__ = ("Parked", "ParkedPush")

_Key = tuple[int, int]


class ParkedPush(msgspec.Struct):
    """One entry of a push that waits for its slot."""

    link: int
    message: Push
    entry: PushEntry
    payload: object
    offset_bytes: int


class Parked:
    """What waits for slots that have no value yet."""

    def __init__(self) -> None:
        self._pushes: dict[_Key, dict[int, ParkedPush]] = {}
        self._pulls: dict[_Key, dict[tuple[int, int], PullWait]] = {}
        self._users: dict[int, int] = {}

    def push(
        self, link: int, message: Push, entry: PushEntry, payload: object, offset_bytes: int
    ) -> bool:
        """Keep the first push of a rank; return whether its payload must be held from now on.

        A repeated push only takes over the link and request that are to be answered.
        """
        waiting = self._pushes.setdefault((entry.key_id, entry.index), {})
        known = waiting.get(message.rank)
        if known is not None:
            known.link = link
            known.message = message
            return False
        waiting[message.rank] = ParkedPush(link, message, entry, payload, offset_bytes)
        if payload is None:
            return False
        users = self._users.get(id(payload), 0)
        self._users[id(payload)] = users + 1
        return users == 0

    def pull(self, key: _Key, where: tuple[int, int], wait: PullWait) -> None:
        """Keep a pull of link and request ``where``."""
        self._pulls.setdefault(key, {})[where] = wait

    def has_pull(self, key: _Key, where: tuple[int, int]) -> bool:
        """Return whether this pull is kept already."""
        return where in self._pulls.get(key, ())

    def take(self, key: _Key) -> tuple[list[ParkedPush], dict[tuple[int, int], PullWait]]:
        """Return what waited for a slot."""
        return list(self._pushes.pop(key, {}).values()), self._pulls.pop(key, {})

    def done_with(self, payload: object) -> bool:
        """Note that one entry of ``payload`` was used; return whether to let it go now."""
        if payload is None:
            return False
        users = self._users.pop(id(payload)) - 1
        if users:
            self._users[id(payload)] = users
        return users == 0

    def keys(self) -> list[_Key]:
        """Return the slots that somebody waits for."""
        return sorted({*self._pushes, *self._pulls})
