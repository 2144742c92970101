"""What a server's slots give out: answers to pushes, and values and rows to who pulls them.

Called by :class:`~bireme.core.shelf.Shelf`, which knows when.
"""

import msgspec

from bireme.core.actions import Release, Send
from bireme.core.defects import refusal_of
from bireme.core.groups import Group
from bireme.core.replies import Replies
from bireme.core.slots import PushWait, Slot
from bireme.core.values import SlotValues
from bireme.wire.messages import Rows, Value

__all__ = ("WHOLE", "Outlet", "Peer")

WHOLE = -1
"""Waits for a whole value, where a pull of rows has their number."""


class Peer(msgspec.Struct, frozen=True):
    """The worker at the other end of a link."""

    rank: int
    incarnation: int
    node: int
    """Where its contributions belong in the canonical sum."""
    span: tuple[int, int]
    """Its shards: the first, and one after the last."""


class Outlet:
    """Answers out of slots.

    Args:
        values: The arithmetic.
        replies: Where answers are collected.
        peers: The workers by link; who is not there any more is not answered.
    """

    def __init__(self, values: SlotValues, replies: Replies, peers: dict[int, Peer]) -> None:
        self._values = values
        self._replies = replies
        self._peers = peers
        self.view = 0

    def hand_out(self, slot: Slot) -> None:
        """Answer the pushes whose rounds are complete, and the pulls that waited for them."""
        ledger = slot.ledger
        if slot.pushes:
            waiting, slot.pushes = slot.pushes, {}
            shared = None
            for rank, wait in waiting.items():
                if wait[2] < ledger.answered(rank):
                    if wait[3] and shared is None:
                        shared = self._values.read(slot.cell)
                    self.answer(slot, rank, wait, shared)
                else:
                    slot.pushes[rank] = wait
        if slot.pulls:
            self.answer_pulls(slot)

    def answer(
        self,
        slot: Slot,
        rank: int,
        wait: PushWait,
        shared: tuple[object, int, str] | None = None,
    ) -> None:
        """Answer a push that counts, if who sent it is still there.

        Args:
            slot: What was pushed to.
            rank: By whom.
            wait: What is known of the push.
            shared: The value, if it has been read already.
        """
        link, request, number, want_value, priority, is_alone = wait
        if link not in self._peers:
            return
        if want_value and is_alone and slot.ledger.pools:
            read = shared or self._values.read(slot.cell)
            version, entries = slot.ledger.version, slot.entries_alone(*read[1:])
            message = Value(request, self.view, version, entries)
            self._replies.whole(link, message, read[0], priority)
        elif want_value:
            self._send_value(slot, (link, request), priority, shared)
        elif isinstance(slot, Group):
            self._replies.ack_all((link, request), self.view)
        else:
            self._replies.ack(link, request, slot.key_id, slot.index, number)

    def send_value(self, slot: Slot, where: tuple[int, int], priority: int) -> None:
        """Send the value of a slot to who pulls it, by link and request."""
        try:
            self._send_value(slot, where, priority)
        except Exception as error:
            self._replies.fault(*where, refusal_of(error))

    def _send_value(
        self,
        slot: Slot,
        where: tuple[int, int],
        priority: int,
        shared: tuple[object, int, str] | None = None,
    ) -> None:
        read = shared or self._values.read(slot.cell)
        if isinstance(slot, Group):
            version = slot.ledger.version
            message = Value(where[1], self.view, version, slot.entries_alone(*read[1:]))
            self._replies.whole(where[0], message, read[0], priority)
            return
        if not slot.ledger.pools:
            self._values.seen(slot.cell, self._peers[where[0]].rank, slot.ledger.version)
        name = (slot.key_id, slot.index)
        self._replies.value(where, name, slot.ledger.version, read, self.view, priority)

    def answer_pulls(self, slot: Slot) -> None:
        """Answer the pulls for which the value is recent enough by now."""
        visible = slot.ledger.visible
        for where, (rank, minimum, payload, num_ids, priority) in list(slot.pulls.items()):
            if not visible(rank, minimum):
                continue
            del slot.pulls[where]
            if where[0] not in self._peers:
                pass
            elif num_ids == WHOLE:
                self.send_value(slot, where, priority)
            else:
                self.send_rows(slot, where, payload, num_ids)
            if num_ids > 0:
                self._replies.add(Release(payload))

    def send_rows(self, slot: Slot, where: tuple[int, int], payload: object, num_ids: int) -> None:
        """Send some rows of a slot to who pulls them; a payload with the wanted ids is kept."""
        link, request = where
        try:
            handle, size = self._values.read_rows(slot.cell, payload, num_ids)
        except Exception as error:
            self._replies.fault(link, request, refusal_of(error))
            return
        rows = Rows(request, self.view, slot.key_id, slot.index, slot.ledger.version, num_ids, size)
        self._replies.add(Send(link, rows, (handle,)))
