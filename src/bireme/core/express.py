"""What repeats exactly, by the shortest way: the same state as by the ordinary one, in fewer steps.

A training step is like the one before but for the numbers of its messages. The shell knows such
messages by their bytes (:mod:`bireme.wire.repeats`) and offers them here first. Whatever is not
just the next repetition is declined with nothing changed, and takes the ordinary way. Called by
:class:`~bireme.core.server.ServerCore` and :class:`~bireme.core.worker.WorkerCore`.
"""

from typing import TYPE_CHECKING

from bireme.core.actions import Action, Complete, Deliver, Release
from bireme.core.calls import PushCall
from bireme.core.desk import Desk
from bireme.core.groups import Group
from bireme.core.outlet import Peer
from bireme.core.requests import PushRequest
from bireme.core.shelf import Shelf
from bireme.errors import BiremeError
from bireme.wire.messages import Push, Value

if TYPE_CHECKING:
    from bireme.core.slots import Slot

__all__ = ("ExpressDesk", "ExpressShelf")


class ExpressShelf(Shelf):
    """A server's slots, with a short way for pushes that repeat."""

    def push_again(
        self,
        link: int,
        peer: Peer,
        push: Push,
        numbers: tuple[int, int],
        payload: object,
        now_s: float,
    ) -> bool:
        """Take in a push that is like an earlier one, if it is the next that is expected.

        Args:
            link: By which it came.
            peer: Who sent it.
            push: One that was like it but for its numbers; of the newest view.
            numbers: Its request and its round.
            payload: Its payload.
            now_s: The time.

        Returns:
            Whether it was taken in: as by ``push``. If not, nothing has changed.
        """
        request, number = numbers
        entries = push.entries
        unit: Slot | None
        if len(entries) == 1:
            unit = self._slots.get((entries[0].key_id, entries[0].index))
        else:
            unit = self._groups.formed(entries)
        if unit is None or unit.group is not None or unit.refused or peer.rank != push.rank:
            return False
        entry = unit.entry if isinstance(unit, Group) else entries[0]
        ledger, number = unit.ledger, number + entry.lead
        if number != ledger.expected(peer.rank) or peer.span != (push.first_shard, push.end_shard):
            return False
        first = not unit.present
        try:
            unit.check(self._values, push, entry, payload, 0)
            unit.add(self._values, self._crew.tree, peer.node, push, entry, payload, 0)
        except BiremeError:
            return False
        self._now_s = now_s
        if first:
            unit.opened_s = now_s
        self._crew.weights[peer.rank] = push.weight
        unit.pushes[peer.rank] = (link, request, number, push.want_value, push.priority, True)
        if ledger.ready(self._crew.awaited):
            self._finish(unit)
        return True


class ExpressDesk:
    """A worker's short way for pushpulls of one bunch.

    Args:
        desk: What the worker has in hand.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def push(self, call: PushCall, now_s: float) -> tuple[int, PushRequest] | None:
        """Take a call that wants the new values of one bunch and of nothing else.

        The caller sends the request by the link at once.

        Returns:
            Link and request, as ``handle`` would have sent it. ``None``, with nothing changed, if
            anything stands in the way.
        """
        desk = self._desk
        bunch, handle = call.bunches[0]
        link = desk.routes.link_to(bunch.server)
        if (
            not (bunch.lanes and call.weight >= 0)
            or link is None
            or desk.handing.attached
            or desk.member.ended is not None
            or not desk.lanes.is_free(bunch)
        ):
            return None
        desk.now_s = now_s
        opened = desk.calls.open(call, now_s, len(bunch.lanes))
        request = desk.lanes.whole(opened, bunch, handle)
        desk.register(request)
        request.sent = True
        request.due_s = now_s + request.pause_s
        return link, request

    def value(
        self, value: Value, request_number: int, payload: object, now_s: float
    ) -> list[Action] | None:
        """Take the values of a bunch that answer its push.

        Args:
            value: A message that was like this one but for its numbers.
            request_number: What it answers.
            payload: Its payload.
            now_s: The time.

        Returns:
            What is to be done; ``None``, with nothing changed, if it is anything else.
        """
        desk = self._desk
        request = desk.requests.get(request_number)
        if type(request) is not PushRequest or desk.member.ended is not None:
            return None
        whole, call = request.whole, request.call
        if whole is None or call is None or not (request.want_value and call.open):
            return None
        bunch, handle, _ = whole
        if call.remaining != len(bunch.lanes) or not bunch.answered_by(value.entries):
            return None
        desk.now_s = now_s
        desk.lanes.bunch_answered(bunch)
        del desk.requests[request_number]
        call.remaining = 0
        desk.calls.close(call)
        desk.actions += (
            Deliver(call.id, (), payload, bunch, value),
            Release(handle),
            Complete(call.id, call.result or None),
        )
        return desk.take()
