"""What a relay has gathered of one push of all its workers: sums along the canonical tree.

Called by :mod:`bireme.core.relay`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from bireme.core.tree import Tree
from bireme.types.choices import Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import Handover, JointPush, PushEntry

__all__ = ("Bundle", "Client", "Piece", "RelaySums", "is_plain")

RAW = "raw"
SUM = "sum"
"""Encoding of a sum of raw values, in the type in which a server sums them."""


class RelaySums(Protocol):
    """The arithmetic that a relay is given; it never looks into a payload itself.

    A *handle* is memory that can be sent. Each that is returned is let go by one ``Release``,
    except those that ``add`` and ``merge`` use up. Bits are those of a server's arithmetic.
    """

    def first(self, dtype: DType, payload: object, weight: float) -> object:
        """Return ``payload`` times ``weight`` in the type in which ``dtype`` is summed."""

    def add(self, dtype: DType, total: object, payload: object, weight: float) -> object:
        """Return ``total`` plus ``payload`` times ``weight``; ``total`` is used up."""

    def merge(self, dtype: DType, one: object, other: object) -> object:
        """Return the sum of two; both are used up."""

    def copy(self, payload: object) -> object:
        """Return a handle of the same bytes."""

    def sum_itemsize(self, dtype: DType) -> int:
        """Return the bytes of one element of a sum."""


class Client:
    """A local worker's part in a bundle: where the answer goes."""

    __slots__ = ("link", "request", "want_value", "weight")

    def __init__(self, link: int, message: Handover) -> None:
        self.link = link
        self.request = message.request
        self.want_value = message.want_value
        self.weight = message.weight


class Piece:
    """One message to the server, until it is answered."""

    __slots__ = ("bundle", "due_s", "handle", "message", "pause_s")

    def __init__(self, bundle: "Bundle", message: JointPush, handle: object) -> None:
        self.bundle = bundle
        self.message = message
        self.handle = handle
        self.due_s = 0.0
        self.pause_s = 0.0


class Bundle:
    """The pushes of the same slots, of one round, by the workers of a machine.

    Args:
        first: The push that began it.
        began_s: When.
        tree: The canonical order.
        sums: The arithmetic.
    """

    def __init__(self, first: Handover, began_s: float, tree: Tree, sums: RelaySums) -> None:
        self.server = first.server
        self.round = first.round
        self.mean = first.mean
        self.began_s = began_s
        self.clients: dict[int, Client] = {}
        """By rank: whose push is in it, for as long as an answer is owed."""
        self.pieces: list[Piece] | None = None
        """What was made of it, once all had come."""
        self.unanswered: set[tuple[int, int]] | None = None
        """Slots without an answer; ``None`` as long as none has one."""
        self.entries = first.entries
        self._raw: tuple[PushEntry, ...] = ()
        self._dtype = first.dtype
        self._tree = tree
        self._sums = sums
        self._partials: dict[int, object] = {}
        self._singles: dict[int, tuple[tuple[PushEntry, ...], object]] = {}
        self.priority = first.priority
        self.want_value = False

    @property
    def slots(self) -> list[tuple[int, int]]:
        """Keys and indices of what it is about."""
        return [(entry.key_id, entry.index) for entry in self.entries]

    def take(
        self, link: int, message: Handover, span: tuple[int, int], payload: object, *, plain: bool
    ) -> None:
        """Take the push of a rank that is not in it yet.

        Args:
            link: Whence it came.
            message: The push; of the same slots and round as the first.
            span: The rank's shards.
            payload: Its bytes; read during the call only.
            plain: Whether it can be added to others.
        """
        self.clients[message.rank] = Client(link, message)
        self.priority = max(self.priority, message.priority)
        self.want_value = self.want_value or message.want_value
        dtype, sums, weight = self._dtype, self._sums, message.weight
        if dtype is None or payload is None or not plain or message.dtype is not dtype:
            handle = sums.copy(payload) if payload is not None else None
            self._singles[message.rank] = (message.entries, handle)
            return
        self._raw = message.entries
        tree, partials = self._tree, self._partials
        node = tree.climb(partials, tree.node(*span))
        sibling = partials.pop(node ^ 1, None)
        if sibling is None:
            total = sums.first(dtype, payload, weight)
        else:
            total = sums.add(dtype, sibling, payload, weight)
            node, total = tree.rise(partials, node >> 1, total, partial(sums.merge, dtype))
        partials[node] = total

    def close(
        self, leader: int, view: int, spans: Mapping[int, tuple[int, int]], numbers: Iterator[int]
    ) -> list[Piece]:
        """Make messages of what has come; the last of them asks for values if anybody wants them.

        Args:
            leader: Rank of the worker whose link carries them.
            view: The newest one.
            spans: The shards of every rank in the bundle.
            numbers: Gives each message its request.
        """
        found: list[tuple[tuple[int, int], bool, tuple[PushEntry, ...], object]] = [
            (spans[rank], False, entries, handle)
            for rank, (entries, handle) in sorted(self._singles.items())
        ]
        sum_entries = self._sum_entries()
        for node, handle in sorted(self._partials.items()):
            found.append((self._tree.span(node), True, sum_entries, handle))
        self.pieces = []
        for position, (span, weighed, entries, handle) in enumerate(found):
            ranks = [rank for rank in sorted(spans) if _within(spans[rank], span)]
            message = JointPush(
                next(numbers),
                view,
                leader,
                *span,
                tuple(self.clients[rank].weight for rank in ranks),
                weighed,
                self.mean,
                self.want_value and position == len(found) - 1,
                self.round,
                self.priority,
                entries,
            )
            self.pieces.append(Piece(self, message, handle))
        return self.pieces

    def handles(self) -> Iterator[object]:
        """Yield what it holds, to be let go."""
        if self.pieces is not None:
            held: Sequence[object] = [piece.handle for piece in self.pieces]
        else:
            held = [*self._partials.values(), *(handle for _, handle in self._singles.values())]
        yield from (handle for handle in held if handle is not None)

    def waits(self, key_id: int, index: int) -> bool:
        """Return whether a slot of it has no answer yet."""
        return self.unanswered is None or (key_id, index) in self.unanswered

    def answered(self, slots: Sequence[tuple[int, int]]) -> bool:
        """Note that these slots are answered; return whether all are."""
        if self.unanswered is None:
            if len(slots) == len(self.entries):
                return True
            self.unanswered = set(self.slots)
        self.unanswered.difference_update(slots)
        return not self.unanswered

    def _sum_entries(self) -> tuple[PushEntry, ...]:
        dtype = self._dtype
        if dtype is None or self._sums.sum_itemsize(dtype) == dtype.itemsize:
            return self._raw
        factor = self._sums.sum_itemsize(dtype) // dtype.itemsize
        return tuple(
            PushEntry(
                entry.key_id, entry.index, entry.lead, entry.payload_bytes * factor, encoding=SUM
            )
            for entry in self._raw
        )


def is_plain(entries: Sequence[PushEntry]) -> bool:
    """Return whether pushes of these entries can be added byte range by byte range."""
    return all([entry.encoding == RAW and entry.layout is Layout.DENSE for entry in entries])


def _within(span: tuple[int, int], of: tuple[int, int]) -> bool:
    return of[0] <= span[0] and span[1] <= of[1]
