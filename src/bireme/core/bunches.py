"""Slots that a worker pushes or pulls together in every step, prepared once for all steps.

Made by whoever calls a worker, used by :mod:`bireme.core.lanes` for its pushes and by
:mod:`bireme.core.answers` to know their answers again. A bunch is one message; what befalls only
some of its slots is dealt with slot by slot. Which slots travel together is one rule for all,
prepared or not: `Dealer`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bireme.types.choices import Layout
from bireme.wire.messages import PullEntry, PushEntry, ValueEntry

if TYPE_CHECKING:
    from bireme.core.requests import Lane, PushItem

__all__ = ("Bunch", "Cut", "Dealer")

Cut = Callable[[object, Sequence[int]], Sequence[object]]
"""Cuts the handle of a payload into one handle for each of the given sizes in bytes. Each part is
released by itself, and the whole no more."""

_RAW = "raw"


class Dealer:
    """Deals the slots for one server to messages.

    A slot of more than half a bundle gets a message of its own: what comes alone over a socket
    needs no copy, and the small slots before and behind it stay together.

    Args:
        bundle_bytes: What a message of several slots holds at most.

    Example:
        >>> dealer = Dealer(100)
        >>> [dealer.place(size_bytes) for size_bytes in (30, 80, 50, 30)]
        [0, 1, 0, 2]
    """

    __slots__ = ("_bundle_bytes", "_num_messages", "_open", "_room")

    def __init__(self, bundle_bytes: int) -> None:
        self._bundle_bytes = bundle_bytes
        self._num_messages = 0
        # The message that takes the next small slot, and how many bytes more.
        self._open = self._room = -1

    def place(self, size_bytes: int) -> int:
        """Return the number of the message that takes the next slot; they count from 0."""
        if 2 * size_bytes > self._bundle_bytes:
            return self._begin()
        if size_bytes > self._room:
            self._open, self._room = self._begin(), self._bundle_bytes
        self._room -= size_bytes
        return self._open

    def _begin(self) -> int:
        self._num_messages += 1
        return self._num_messages - 1


class Bunch:
    """Raw dense values of slots on one server, to be pushed or pulled.

    Args:
        server: Rank of the server that holds them.
        slots: Key, index and bytes of each, in the order of their bytes; no slot twice.

    Example:
        >>> bunch = Bunch(0, [(3, 0, 8), (4, 0, 16)])
        >>> bunch.size_bytes, bunch.answered_by((ValueEntry(3, 0, 0, 8), ValueEntry(4, 0, 0, 16)))
        (24, True)
    """

    __slots__ = (
        "_answer",
        "entries",
        "lanes",
        "pulled",
        "server",
        "size_bytes",
        "sizes",
        "slots",
    )

    def __init__(self, server: int, slots: Sequence[tuple[int, int, int]]) -> None:
        self.server = server
        self.slots = tuple((key_id, index) for key_id, index, _ in slots)
        self.sizes = tuple(size for _, _, size in slots)
        self.size_bytes = sum(self.sizes)
        self.entries = tuple(PushEntry(key_id, index, 0, size) for key_id, index, size in slots)
        self.pulled = tuple(PullEntry(key_id, index, 0) for key_id, index, _ in slots)
        """Its entries in a pull of all of it."""
        self.lanes: tuple[Lane, ...] = ()
        """Of its slots, once a worker has looked them up."""
        self._answer: tuple[ValueEntry, ...] | None = None

    def answered_by(self, entries: tuple[ValueEntry, ...]) -> bool:
        """Return whether a message with these entries brings the value of every slot, in order."""
        if entries is self._answer:
            return True
        if len(entries) != len(self.slots) or any(
            (entry.key_id, entry.index) != slot or entry.payload_bytes != size
            for entry, slot, size in zip(entries, self.slots, self.sizes, strict=True)
        ):
            return False
        self._answer = entries
        return True

    def items(self, handle: object, cut: Cut) -> "Iterator[PushItem]":
        """Yield the push of each slot by itself."""
        parts = cut(handle, self.sizes)
        for (key_id, index), size, part in zip(self.slots, self.sizes, parts, strict=True):
            yield (key_id, index, part, size, _RAW, Layout.DENSE, 0)
