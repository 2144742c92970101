"""A server's slots: takes in contributions, finishes rounds, and knows who waits for what.

Owned by :class:`~bireme.core.server.ServerCore`, which knows who is at the other end of a link and
hands the answers in ``replies`` out. What is answered is in :mod:`bireme.core.outlet`.
"""

from bireme.consistency.registry import new_ledger
from bireme.core.actions import Hold, Release, Send
from bireme.core.defects import describe_defect, refusal_of
from bireme.core.groups import Group, Groups
from bireme.core.outlet import WHOLE, Outlet, Peer
from bireme.core.parked import Parked
from bireme.core.replies import Replies
from bireme.core.slots import Crew, Slot
from bireme.core.values import SlotValues
from bireme.errors import BiremeError, ConfigError, StateError
from bireme.wire.messages import (
    Init,
    InitEntry,
    JointPush,
    Pull,
    PullRows,
    Push,
    PushEntry,
    RoundEntry,
    Rounds,
    RoundsReply,
    SlotRound,
)

__all__ = ("Shelf",)

_REPORTED_SLOTS = 20


class Shelf:
    """The slots of one server.

    Args:
        values: The arithmetic.
        replies: Where answers are collected.
        peers: The workers by link, kept by the owner.
    """

    def __init__(self, values: SlotValues, replies: Replies, peers: dict[int, Peer]) -> None:
        self._values = values
        self._replies = replies
        self._peers = peers
        self._outlet = Outlet(values, replies, peers)
        self._slots: dict[tuple[int, int], Slot] = {}
        self._groups = Groups(values, self._slots)
        self._parked = Parked()
        self._crew = Crew(1, 1)
        self._view = 0
        self._now_s = 0.0
        self.failure: str | None = None
        """Why the server cannot go on: an update failed after its round was taken in."""

    def set_view(self, view: int, crew: Crew) -> None:
        """Take over a new view; rounds that only waited for ranks which are gone are finished."""
        self._groups.part_all()
        self._view = self._outlet.view = view
        self._crew = crew
        for slot in self._slots.values():
            slot.ledger.follow(crew.awaited)
            if slot.partials:
                crew.tree.settle(slot.partials, self._values.merge)
                if slot.ledger.ready(crew.awaited):
                    self._finish(slot)
            elif slot.pushes or slot.pulls:
                self._outlet.hand_out(slot)

    def push(self, link: int, peer: Peer, message: Push, payload: object, now_s: float) -> None:
        """Take in the contributions of a push that are new; answer those that are complete."""
        if message.rank != peer.rank or (message.first_shard, message.end_shard) != peer.span:
            error = ConfigError(
                f"W[{peer.rank}] contributes shards {peer.span} as rank {peer.rank}, not "
                f"{(message.first_shard, message.end_shard)} as rank {message.rank}"
            )
            self._replies.fault(link, message.request, error)
            return
        self._now_s = now_s
        self._crew.weights[peer.rank] = message.weight
        if len(message.entries) > 1:
            group = self._groups.of(message.entries)
            if group is not None:
                self._contribute(link, peer.node, group, message, group.entry, payload, 0)
                return
        slots = self._slots
        offset = 0
        for entry in message.entries:
            slot = slots.get((entry.key_id, entry.index))
            if slot is not None:
                if slot.group is not None:
                    self._groups.part(slot.group)
                self._contribute(link, peer.node, slot, message, entry, payload, offset)
            elif message.round + entry.lead:
                number = message.round + entry.lead
                where = (SlotRound(entry.key_id, entry.index, number),)
                self._refuse(link, message, where, 0)
            elif self._parked.push(link, message, entry, payload, offset):
                self._replies.add(Hold(payload))
            offset += entry.payload_bytes

    def joint_push(
        self, link: int, peer: Peer, message: JointPush, payload: object, now_s: float
    ) -> None:
        """Take in contributions of several ranks that a relay has added up."""
        crew = self._crew
        try:
            node = crew.tree.node(message.first_shard, message.end_shard)
            ranks = self._covered(peer, message)
        except ConfigError as error:
            self._replies.fault(link, message.request, error)
            return
        self._now_s = now_s
        crew.weights.update(zip(ranks, message.weights, strict=True))
        group = self._groups.of(message.entries) if len(message.entries) > 1 else None
        if group is not None:
            self._contribute_all(link, node, group, message, group.entry, payload, 0, ranks)
            return
        offset = 0
        for entry in message.entries:
            slot = self._slots.get((entry.key_id, entry.index))
            if slot is None:
                missing = StateError(f"key {entry.key_id} has no first value yet")
                where = (SlotRound(entry.key_id, entry.index, message.round + entry.lead),)
                self._replies.fault(link, message.request, missing, where)
            else:
                if slot.group is not None:
                    self._groups.part(slot.group)
                self._contribute_all(link, node, slot, message, entry, payload, offset, ranks)
            offset += entry.payload_bytes

    def _contribute_all(
        self,
        link: int,
        node: int,
        slot: Slot,
        message: JointPush,
        entry: PushEntry,
        payload: object,
        offset: int,
        ranks: tuple[int, ...],
    ) -> None:
        try:
            _check_joint(slot, ranks)
        except BiremeError as error:
            number = message.round + entry.lead
            self._refuse_entry(link, slot, message, number, error)
        else:
            self._contribute(link, node, slot, message, entry, payload, offset, ranks)

    def _covered(self, peer: Peer, message: JointPush) -> tuple[int, ...]:
        ranks = self._crew.ranks_within(message.first_shard, message.end_shard)
        if message.rank == peer.rank and len(ranks) == len(message.weights):
            return ranks
        raise ConfigError(
            f"a joint push of rank {message.rank} by the link of W[{peer.rank}] covers shards "
            f"{message.first_shard} to {message.end_shard} with {len(message.weights)} weights"
        )

    def pull(self, link: int, peer: Peer, message: Pull) -> None:
        """Answer with the values that are recent enough; keep the rest until they are."""
        where = (link, message.request)
        for slot, lead in self._groups.units(message):
            least = message.min_version + lead
            wait = (peer.rank, least, None, WHOLE, message.priority)
            if isinstance(slot, tuple):
                self._parked.pull(slot, where, wait)
            elif slot.ledger.visible(peer.rank, least):
                self._outlet.send_value(slot, where, message.priority)
            else:
                slot.pulls[where] = wait

    def pull_rows(self, link: int, peer: Peer, message: PullRows, payload: object) -> None:
        """Answer with some rows of a value, as soon as it is recent enough."""
        key, where = (message.key_id, message.index), (link, message.request)
        slot = self._slots.get(key)
        if slot is not None and slot.group is not None:
            self._groups.part(slot.group)
        if slot is not None and slot.ledger.visible(peer.rank, message.min_version):
            self._outlet.send_rows(slot, where, payload, message.num_ids)
            return
        wait = (peer.rank, message.min_version, payload, message.num_ids, 0)
        known = self._parked.has_pull(key, where) if slot is None else where in slot.pulls
        if known:
            return
        if slot is None:
            self._parked.pull(key, where, wait)
        else:
            slot.pulls[where] = wait
        if message.num_ids:
            self._replies.add(Hold(payload))

    def init(self, link: int, message: Init, payload: object, now_s: float) -> None:
        """Create the slots that have no value yet, and serve what waited for them."""
        self._now_s = now_s
        offset = 0
        for entry in message.entries:
            if (entry.key_id, entry.index) in self._slots or self._create(
                link, message, entry, payload, offset
            ):
                self._replies.ack(link, message.request, entry.key_id, entry.index, 0)
            offset += entry.payload_bytes

    def rounds(self, link: int, peer: Peer, message: Rounds) -> None:
        """Tell a rank where it stands."""
        self._groups.part_all()
        wanted = frozenset(message.key_ids)
        rank = peer.rank if message.rank is None else message.rank
        entries = tuple(
            RoundEntry(key_id, index, slot.ledger.expected(rank), slot.ledger.version)
            for (key_id, index), slot in self._slots.items()
            if not wanted or key_id in wanted
        )
        self._replies.add(Send(link, RoundsReply(message.request, self._view, entries)))

    def single_slots(self) -> None:
        """Take every slot for itself: somebody is about to look at their cells."""
        self._groups.part_all()

    def report(self, now_s: float) -> dict[str, object]:
        """Return how many slots there are and which of them wait for whom, as plain data."""
        self._groups.part_all()
        waiting = [slot for slot in self._slots.values() if slot.pushes or slot.pulls]
        waiting.sort(key=lambda slot: slot.opened_s if slot.pushes else now_s)
        return {
            "num_slots": len(self._slots),
            "open": [slot.report(self._crew, now_s) for slot in waiting[:_REPORTED_SLOTS]],
            "not_initialised": [list(key) for key in self._parked.keys()[:_REPORTED_SLOTS]],
            **self._values.report(),
        }

    def _contribute(
        self,
        link: int,
        node: int,
        slot: Slot,
        message: Push | JointPush,
        entry: PushEntry,
        payload: object,
        offset: int,
        ranks: tuple[int, ...] = (),
    ) -> None:
        ledger, number = slot.ledger, message.round + entry.lead
        rank = message.rank if type(message) is Push else _speaker(message)
        # A group is all of its message, as a slot that was pushed alone is.
        is_alone = len(message.entries) == 1 or isinstance(slot, Group)
        wait = (link, message.request, number, message.want_value, message.priority, is_alone)
        expected = ledger.expected(ranks[0] if ranks else rank)
        if number > expected:
            self._note_refused(link, slot, message)
            self._refuse(link, message, slot.names(number), expected)
            return
        if number == expected:
            try:
                if slot.refused:
                    self._check_not_refused(link, slot, message)
                slot.check(self._values, message, entry, payload, offset)
            except Exception as error:
                self._refuse_entry(link, slot, message, number, error)
                return
            if not slot.present:
                slot.opened_s = self._now_s
            try:
                tree = self._crew.tree
                slot.add(self._values, tree, node, message, entry, payload, offset, ranks)
            except BiremeError as error:
                self._refuse_entry(link, slot, message, number, error)
                return
            slot.pushes[rank] = wait
            if ledger.ready(self._crew.awaited):
                self._finish(slot)
        elif number < ledger.answered(rank):
            self._outlet.answer(slot, rank, wait)
        else:
            slot.pushes[rank] = wait

    def _refuse_entry(
        self, link: int, slot: Slot, message: Push | JointPush, number: int, error: Exception
    ) -> None:
        self._note_refused(link, slot, message)
        self._replies.fault(link, message.request, refusal_of(error), slot.names(number))

    def _check_not_refused(self, link: int, slot: Slot, message: Push | JointPush) -> None:
        rank, peer = _speaker(message), self._peers.get(link)
        known = slot.refused.get(rank)
        if known is None or peer is None:
            return
        if known[0] == peer.incarnation and message.request <= known[1]:
            raise StateError("this push was refused before")
        del slot.refused[rank]

    def _note_refused(self, link: int, slot: Slot, message: Push | JointPush) -> None:
        rank, peer = _speaker(message), self._peers.get(link)
        known = slot.refused.get(rank)
        if peer is None:
            return
        newest = message.request
        if known is not None and known[0] == peer.incarnation:
            newest = max(newest, known[1])
        slot.refused[rank] = (peer.incarnation, newest)

    def _refuse(
        self, link: int, message: Push | JointPush, where: tuple[SlotRound, ...], expected: int
    ) -> None:
        first = where[0]
        error = StateError(
            f"W[{message.rank}] pushes number {first.round} of slice {first.index} of key "
            f"{first.key_id}, but its number {expected} has not arrived; a replacement must resume "
            f"the numbering before it pushes"
        )
        self._replies.fault(link, message.request, error, where)

    def _finish(self, slot: Slot) -> None:
        try:
            slot.finish(self._values, self._crew)
        except Exception as error:
            text = error if isinstance(error, BiremeError) else describe_defect(error)
            self.failure = f"the update of key {slot.key_id} failed: {text}"
            return
        self._outlet.hand_out(slot)

    def _create(
        self, link: int, message: Init, entry: InitEntry, payload: object, offset: int
    ) -> bool:
        try:
            self._values.check_init(entry)
            cell = self._values.initialise(message.store, entry, payload, offset)
        except Exception as error:
            where = (SlotRound(entry.key_id, entry.index, 0),)
            self._replies.fault(link, message.request, refusal_of(error), where)
            return False
        key = (entry.key_id, entry.index)
        ledger = new_ledger(entry.consistency, entry.staleness)
        ledger.follow(self._crew.awaited)
        slot = Slot(*key, message.store, cell, ledger)
        self._slots[key] = slot
        self._groups.slots_changed()
        pushes, slot.pulls = self._parked.take(key)
        self._outlet.answer_pulls(slot)
        for each in pushes:
            node = self._crew.tree.node(each.message.first_shard, each.message.end_shard)
            self._contribute(
                each.link, node, slot, each.message, each.entry, each.payload, each.offset_bytes
            )
            if self._parked.done_with(each.payload):
                self._replies.add(Release(each.payload))
        return True


def _speaker(message: Push | JointPush) -> int:
    """Return under which number a push waits: a relay has one beside its worker's own."""
    return ~message.rank if isinstance(message, JointPush) else message.rank


def _check_joint(slot: Slot, ranks: tuple[int, ...]) -> None:
    """Raise unless a joint push of these ranks counts for all of them or for none.

    Raises:
        ConfigError: Contributions to the slot are applied one by one.
        StateError: The ranks have not all come as far.
    """
    if not slot.ledger.pools:
        raise ConfigError(f"key {slot.key_id} takes no joint pushes: it is not synchronous")
    if len({slot.ledger.expected(rank) for rank in ranks}) > 1:
        raise StateError(f"some of the contributions of ranks {list(ranks)} are known already")
