"""What a worker has asked of a server or of the scheduler and has no answer to yet.

A request builds its message anew for each sending, from what is still unanswered of it, under the
view of the moment; it keeps its number, so that an answer to any of its sendings counts.
Called by :mod:`bireme.core.worker`.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bireme.core.opencalls import OpenCall
from bireme.types.choices import Layout
from bireme.wire.messages import (
    Fetch,
    Handover,
    Init,
    InitEntry,
    Message,
    Pull,
    PullEntry,
    PullRows,
    Push,
    PushEntry,
)

if TYPE_CHECKING:
    from bireme.core.bunches import Bunch, Cut
    from bireme.types.dtypes import DType

__all__ = (
    "SCHEDULER_RANK",
    "InitRequest",
    "Lane",
    "PullRequest",
    "PushItem",
    "PushRequest",
    "Request",
    "RowsRequest",
)

SCHEDULER_RANK = -1
"""Stands for the scheduler where a server's rank is expected."""

PushItem = tuple[int, int, object, int, str, Layout, int]
"""An entry of a ``PushCall``: key, index, payload, bytes, encoding, layout, rows."""


class Lane:
    """One slot as a worker sees it: one push under way, the others wait in order.

    Args:
        server: Rank of the server that holds the slot.
    """

    __slots__ = ("busy", "dtype", "number", "pending", "pools", "queue", "server")

    def __init__(self, server: int) -> None:
        self.server = server
        self.number = 0
        """Number of the push that is under way or comes next."""
        self.pending = 0
        """Pushes that were handed in and are not answered."""
        self.busy = False
        """A push or an init is under way."""
        self.dtype: DType | None = None
        self.pools = False
        """The server adds up the pushes of a round, so that a relay may do so before."""
        self.queue: deque[tuple[OpenCall, PushItem | tuple[InitEntry, object]]] = deque()


class Request:
    """Base of all requests.

    Args:
        number: Unique among the requests of this process.
        call: The user's call that it works for; ``None`` for the worker's own questions.
        server: Rank of the server it goes to, or ``SCHEDULER_RANK``.
        priority: Of its messages.
    """

    __slots__ = ("by_relay", "call", "due_s", "number", "pause_s", "priority", "sent", "server")

    def __init__(self, number: int, call: OpenCall | None, server: int, priority: int = 0) -> None:
        self.number = number
        self.call = call
        self.server = server
        self.priority = priority
        self.sent = False
        self.by_relay = False
        """It goes to the relay of this machine, not to the server itself."""
        self.due_s = 0.0
        """When it is looked at again if no answer has come."""
        self.pause_s = 0.0
        """Time to the next such moment; doubles."""

    def message(self, view: int) -> Message:
        """Return what to send under ``view``."""
        raise NotImplementedError

    def payload(self) -> tuple[object, ...]:
        """Return the handles of the bytes that follow."""
        return ()


class PushRequest(Request):
    """Pushes of several slots of one call to one server."""

    __slots__ = ("_items", "mean", "rank", "span", "want_value", "weight", "whole")

    def __init__(
        self, number: int, call: OpenCall, server: int, rank: int, span: tuple[int, int]
    ) -> None:
        pushed = call.call
        super().__init__(number, call, server, pushed.priority)  # type: ignore[union-attr]
        self.rank = rank
        self.span = span
        self.weight: float = pushed.weight  # type: ignore[union-attr]
        self.mean: bool = pushed.mean  # type: ignore[union-attr]
        self.want_value: bool = pushed.want_value  # type: ignore[union-attr]
        self._items: dict[tuple[int, int], tuple[Lane, PushItem]] = {}
        self.whole: tuple[Bunch, object, Cut] | None = None
        """A bunch that nobody has taken apart: itself, its payload and how to take it apart."""

    @property
    def items(self) -> dict[tuple[int, int], tuple[Lane, PushItem]]:
        """What is not acknowledged, by slot. Whoever looks takes a bunch apart."""
        if self.whole is not None:
            bunch, handle, cut = self.whole
            self.whole = None
            for lane, item in zip(bunch.lanes, bunch.items(handle, cut), strict=True):
                self._items[item[0], item[1]] = (lane, item)
        return self._items

    @property
    def bunch(self) -> "Bunch | None":
        """What it carries as one, as long as nobody has looked at its slots one by one."""
        return None if self.whole is None else self.whole[0]

    @property
    def is_pooled(self) -> bool:
        """Whether the pushes of a round are added up, for every slot in it."""
        return all([lane.pools for lane in self._lanes()])

    def handover(self, view: int) -> Handover:
        """Return the push in the form in which a relay takes it."""
        push, dtypes = self.message(view), {lane.dtype for lane in self._lanes()}
        return Handover(
            push.request,
            view,
            self.server,
            dtypes.pop() if len(dtypes) == 1 else None,
            push.rank,
            push.weight,
            push.mean,
            push.want_value,
            push.round,
            push.priority,
            push.entries,
        )

    def _lanes(self) -> Sequence[Lane]:
        if self.whole is not None:
            return self.whole[0].lanes
        return [lane for lane, _ in self._items.values()]

    def carry(self, bunch: "Bunch", handle: object, cut: "Cut") -> None:
        """Make a bunch what is pushed.

        Args:
            bunch: Its slots; their lanes are busy with this push.
            handle: Of its payload.
            cut: How to take the payload apart.
        """
        self.whole = bunch, handle, cut

    def message(self, view: int) -> Push:
        """Return the push of what is not acknowledged."""
        whole = self.whole
        if whole is not None:
            return self._message(view, whole[0].lanes[0].number, whole[0].entries)
        least = min([lane.number for lane, _ in self.items.values()], default=0)
        entries = tuple(
            PushEntry(item[0], item[1], lane.number - least, item[3], item[4], item[5], item[6])
            for lane, item in self.items.values()
        )
        return self._message(view, least, entries)

    def _message(self, view: int, least: int, entries: tuple[PushEntry, ...]) -> Push:
        first, end = self.span
        return Push(
            self.number,
            view,
            self.rank,
            first,
            end,
            self.weight,
            self.mean,
            self.want_value,
            least,
            self.priority,
            entries,
        )

    def payload(self) -> tuple[object, ...]:
        """Return the handles of what is not acknowledged."""
        if self.whole is not None:
            return (self.whole[1],)
        return tuple(item[2] for _, item in self.items.values())


class InitRequest(Request):
    """First values of several slots of one call on one server."""

    __slots__ = ("items", "store")

    def __init__(self, number: int, call: OpenCall, server: int, store: int) -> None:
        super().__init__(number, call, server)
        self.store = store
        self.items: dict[tuple[int, int], tuple[Lane, tuple[InitEntry, object]]] = {}

    def message(self, view: int) -> Init:
        """Return the values that are not acknowledged."""
        entries = tuple(item[0] for _, item in self.items.values())
        return Init(self.number, view, self.store, entries)

    def payload(self) -> tuple[object, ...]:
        """Return the handles of the values that travel."""
        return tuple(item[1] for _, item in self.items.values() if item[0].payload_bytes)


class PullRequest(Request):
    """Values of several slots of one call from one server."""

    __slots__ = ("_slots", "_whole", "is_pooled", "rank")

    def __init__(
        self,
        number: int,
        call: OpenCall,
        server: int,
        slots: dict[tuple[int, int], int],
        priority: int,
    ) -> None:
        super().__init__(number, call, server, priority)
        self.rank = 0
        self.is_pooled = False
        """Whether all slots are of keys whose rounds make the same values for everyone."""
        self._slots = slots
        self._whole: tuple[Bunch, int] | None = None

    @property
    def slots(self) -> dict[tuple[int, int], int]:
        """Least version of what has not arrived. Whoever looks takes a bunch apart."""
        if self._whole is not None:
            bunch, least = self._whole
            self._whole = None
            self._slots = dict.fromkeys(bunch.slots, least)
        return self._slots

    @property
    def bunch(self) -> "Bunch | None":
        """What it asks for as one, as long as nobody has looked at its slots one by one."""
        return None if self._whole is None else self._whole[0]

    @classmethod
    def of_bunch(
        cls, number: int, call: OpenCall, bunch: "Bunch", rank: int, priority: int
    ) -> "PullRequest":
        """Ask for a bunch: as one if its slots stand alike, else for each at its own version."""
        least = [lane.number + lane.pending for lane in bunch.lanes]
        request = cls(number, call, bunch.server, {}, priority)
        request.rank = rank
        request.is_pooled = all([lane.pools for lane in bunch.lanes])
        if min(least) == max(least):
            request._whole = bunch, least[0]
        else:
            request._slots = dict(zip(bunch.slots, least, strict=True))
        return request

    def message(self, view: int) -> Pull:
        """Return the question for what has not arrived."""
        whole = self._whole
        if whole is not None:
            return Pull(self.number, view, whole[1], self.priority, whole[0].pulled)
        first = min(self.slots.values(), default=0)
        entries = tuple(PullEntry(*slot, least - first) for slot, least in self.slots.items())
        return Pull(self.number, view, first, self.priority, entries)

    def fetch(self, view: int) -> Fetch:
        """Return the question in the form in which a relay takes it."""
        pull = self.message(view)
        return Fetch(
            self.number,
            view,
            self.server,
            self.rank,
            pull.min_version,
            self.priority,
            pull.entries,
        )


class RowsRequest(Request):
    """Rows of one slot."""

    __slots__ = ("handle", "min_version", "num_ids", "slot")

    def __init__(
        self,
        number: int,
        call: OpenCall,
        server: int,
        slot: tuple[int, int],
        min_version: int,
        rows: tuple[object, int],
        priority: int,
    ) -> None:
        super().__init__(number, call, server, priority)
        self.slot = slot
        self.min_version = min_version
        self.handle, self.num_ids = rows

    def message(self, view: int) -> PullRows:
        """Return the question."""
        return PullRows(self.number, view, *self.slot, self.min_version, self.num_ids)

    def payload(self) -> tuple[object, ...]:
        """Return the handle of the row numbers."""
        return (self.handle,)
