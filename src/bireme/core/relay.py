"""The relay's state machine: pushes and pulls once for all workers of a machine.

It runs beside the first worker of a machine, whose name it bears towards the servers. Fed by
``node.relay`` with what its sockets bring, and by ``sim`` under virtual time. Whatever it cannot do
it declines, and the worker pushes for itself: so nothing depends on it but bytes on a link.
"""

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bireme.core.actions import Action, Close, Connect, Log, Release, Send
from bireme.core.events import ConnectFailed, Event, Linked, Lost, Received
from bireme.core.fetching import Fetchings
from bireme.core.gathering import Bundle, Client, Piece, RelaySums, is_plain
from bireme.core.member import RETRY_S
from bireme.core.neighbours import Neighbours
from bireme.core.tree import Tree
from bireme.core.turns import Turns
from bireme.types.nodes import NodeId, Role
from bireme.types.shards import span_of
from bireme.wire.messages import (
    Ack,
    Attach,
    Attached,
    Declined,
    Fault,
    Fetch,
    Handover,
    JobConfig,
    Leave,
    Message,
    RoundEntry,
    Rounds,
    RoundsReply,
    SlotRound,
    Stale,
    Status,
    StatusRequest,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("RelayCore",)

_ATTACH_RESEND_S = 1.0
_PATIENCE_S = 10.0
"""How long a push waits here for the same push of the other workers, then its worker sends it."""
_LONGEST_PAUSE = 8


class _Way:
    """The link to one server."""

    __slots__ = ("addresses", "attached", "due_s", "link", "node")

    def __init__(self, node: NodeId, addresses: tuple[str, ...]) -> None:
        self.node = node
        self.addresses = addresses
        self.link: int | None = None
        self.attached = False
        self.due_s: float | None = None
        """When to try again: to connect without a link, to attach with one."""


class RelayCore:
    """Adds up what the workers of one machine push, and speaks to the servers for them.

    Args:
        neighbours: The workers, and the servers on other machines.
        config: What the scheduler settled.
        incarnation: Of the leader.
        view: The newest one.
        sums: The arithmetic.

    Guarantees:
        A push is in one message to its server at most, and what all workers pull is asked for once,
        beside what is sent again; each is answered, or declined within ``_PATIENCE_S`` unless it
        has gone to the server. Memory: one sum for each slot that is under way, and none between
        steps.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        config: JobConfig,
        incarnation: int,
        view: int,
        sums: RelaySums,
    ) -> None:
        self._leader = neighbours.leader.node
        self._incarnation = incarnation
        self._view = view
        self._sums = sums
        self._pause_s = config.resend_timeout_s
        self._tree = Tree(config.num_shards)
        self._spans = {
            rank: span_of(rank, config.num_workers, config.num_shards) for rank in neighbours.ranks
        }
        self._ways = {
            info.node.rank: _Way(info.node, info.addresses) for info in neighbours.servers
        }
        self._servers: dict[int, _Way] = {}
        """By link."""
        self._workers: dict[int, int] = {}
        """Rank of each local worker, by link."""
        self._turns = Turns()
        self._pieces: dict[int, Piece] = {}
        """By request: what was sent and is not answered."""
        self._questions: dict[int, int] = {}
        """By request: the piece that was asked about."""
        self._numbers = itertools.count()
        self._fetchings = Fetchings(
            self._workers, self._link_to, sums, self._numbers, config.resend_timeout_s
        )
        self._sweep_s: float | None = None
        self._actions: list[Action] = []
        self._now_s = 0.0
        self._from_workers: dict[type[Message], Callable[..., None]] = {
            Handover: self._handover,
            Fetch: self._fetch,
            Rounds: self._rounds,
        }
        self._from_servers: dict[type[Message], Callable[..., None]] = {
            Value: self._value,
            Ack: self._ack,
            RoundsReply: self._rounds_reply,
            Fault: self._fault,
            Stale: self._stale,
            Attached: self._attached,
        }

    def start(self, now_s: float) -> list[Action]:
        """Begin: connect to the servers."""
        self._now_s = now_s
        return [Connect(way.node, way.addresses) for way in self._ways.values()]

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due."""
        due = [way.due_s for way in self._ways.values() if way.due_s is not None]
        for each in (self._sweep_s, self._fetchings.next_deadline_s()):
            if each is not None:
                due.append(each)
        return min(due, default=None)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event and return what is to be done."""
        self._now_s = now_s
        if type(event) is Received:
            self._received(event.link, event.message, event.payload)
        elif type(event) is Linked:
            self._linked(event.link, event.node)
        elif type(event) is ConnectFailed:
            self._ways[event.node.rank].due_s = now_s + RETRY_S
        elif type(event) is Lost:
            self._lost(event.link, event.reason)
        else:
            self._tick()
        actions, self._actions = self._actions, []
        return actions

    # Links.

    def _received(self, link: int, message: Message, payload: object) -> None:
        if type(message) is Attach:
            self._attach(link, message)
        elif type(message) is StatusRequest:
            self._send(link, Status(message.request, self._report()))
        elif type(message) is Leave:
            self._worker_gone(link)
        elif link in self._workers or link in self._servers:
            is_worker = link in self._workers
            receivers = self._from_workers if is_worker else self._from_servers
            receiver = receivers.get(type(message))
            if receiver is not None:
                receiver(link, message, payload)
        else:
            self._actions.append(Close(link))

    def _attach(self, link: int, message: Attach) -> None:
        if message.node.role is not Role.WORKER or message.node.rank not in self._spans:
            self._actions.append(Close(link))
            return
        self._workers[link] = message.node.rank
        self._view = max(self._view, message.view)
        self._send(link, Attached(self._leader, self._incarnation, self._view))

    def _linked(self, link: int, node: NodeId) -> None:
        way = self._ways[node.rank]
        if way.link is not None:
            self._servers.pop(way.link, None)
        way.link, way.attached = link, False
        way.due_s = self._now_s + _ATTACH_RESEND_S
        self._servers[link] = way
        self._send(link, Attach(self._leader, self._incarnation, self._view))

    def _attached(self, link: int, _message: Attached, _payload: object) -> None:
        way = self._servers[link]
        if way.attached:
            return
        way.attached, way.due_s = True, None
        for piece in list(self._pieces.values()):
            if piece.bundle.server == way.node.rank:
                self._send_piece(piece)
        self._actions += self._fetchings.reached(way.node.rank, self._view, self._now_s)

    def _lost(self, link: int, reason: str) -> None:
        way = self._servers.pop(link, None)
        if way is None:
            self._worker_gone(link)
        elif way.link == link:
            way.link, way.attached, way.due_s = None, False, None
            text = f"the relay lost the link to {way.node}: {reason}"
            # Servers leave at the job's end, when nothing is under way.
            level = "warning" if self._pieces or self._fetchings.is_waiting else "debug"
            self._actions += [Log(level, text), Connect(way.node, way.addresses)]

    def _worker_gone(self, link: int) -> None:
        """A worker speaks for itself from now on: nothing waits for it, and what it gave goes."""
        rank = self._workers.pop(link, None)
        if rank is None or rank in self._workers.values():
            return
        self._actions += self._fetchings.without(rank, self._view, self._now_s)
        for bundle in self._turns.open_bundles():
            if rank in bundle.clients:
                self._decline(bundle, f"W[{rank}] has left its relay")
            else:
                self._close_if_complete(bundle)

    # What workers hand over.

    def _handover(self, link: int, message: Handover, payload: object) -> None:
        if message.rank != self._workers.get(link) or message.server not in self._ways:
            self._send(link, Declined(message.request, "this relay does not serve it"))
            return
        self._view = max(self._view, message.view)
        bundle = self._turns.find(message)
        if bundle is None:
            is_late, conflicting = self._turns.admit(message)
            for each in conflicting:
                self._decline(each, "workers push the same keys in different messages")
            if is_late:
                self._send(link, Declined(message.request, "its round is under way without it"))
                return
            bundle = Bundle(message, self._now_s, self._tree, self._sums)
            self._turns.open(message, bundle)
            if self._sweep_s is None:
                self._sweep_s = self._now_s + self._pause_s / 4
        known = bundle.clients.get(message.rank)
        if known is not None:
            known.link, known.request = link, message.request
            return
        if bundle.pieces is not None or message.mean is not bundle.mean:
            self._send(link, Declined(message.request, "its round is under way without it"))
            if bundle.pieces is None:
                self._decline(bundle, "one worker pushes a mean and another a sum")
            return
        span = self._spans[message.rank]
        bundle.take(link, message, span, payload, plain=is_plain(message.entries))
        self._close_if_complete(bundle)

    def _fetch(self, link: int, message: Fetch, _payload: object) -> None:
        if message.rank != self._workers.get(link) or message.server not in self._ways:
            self._send(link, Declined(message.request, "this relay does not serve it"))
            return
        self._view = max(self._view, message.view)
        self._actions += self._fetchings.ask(link, message, self._view, self._now_s)

    def _link_to(self, server: int) -> int | None:
        way = self._ways[server]
        return way.link if way.attached else None

    def _close_if_complete(self, bundle: Bundle) -> None:
        if bundle.pieces is not None or any(
            rank not in bundle.clients for rank in self._workers.values()
        ):
            return
        spans = {rank: self._spans[rank] for rank in bundle.clients}
        for piece in bundle.close(self._leader.rank, self._view, spans, self._numbers):
            self._pieces[piece.message.request] = piece
            piece.pause_s = self._pause_s
            self._send_piece(piece)

    def _send_piece(self, piece: Piece) -> None:
        piece.due_s = self._now_s + piece.pause_s
        way = self._ways[piece.bundle.server]
        if way.link is None or not way.attached:
            return
        payload = () if piece.handle is None else (piece.handle,)
        self._actions.append(Send(way.link, piece.message, payload, piece.message.priority))

    def _decline(self, bundle: Bundle, reason: str) -> None:
        for client in bundle.clients.values():
            if client.link in self._workers:
                self._send(client.link, Declined(client.request, reason))
        self._actions.append(Log("info", f"the relay declines a push: {reason}"))
        self._end(bundle)

    def _end(self, bundle: Bundle) -> None:
        for piece in bundle.pieces or ():
            self._pieces.pop(piece.message.request, None)
        self._actions += [Release(handle) for handle in bundle.handles()]
        self._turns.close(bundle)

    def _rounds(self, link: int, message: Rounds, _payload: object) -> None:
        """Tell a worker which of its pushes are here: whatever is not, it sends again."""
        rank, wanted = self._workers[link], frozenset(message.key_ids)
        entries = tuple(
            RoundEntry(entry.key_id, entry.index, number + 1, number)
            for bundle in self._turns.bundles()
            if rank in bundle.clients
            for entry in bundle.entries
            if entry.key_id in wanted and bundle.waits(entry.key_id, entry.index)
            for number in (bundle.round + entry.lead,)
        )
        self._send(link, RoundsReply(message.request, self._view, entries))

    # What servers answer.

    def _value(self, _link: int, message: Value, payload: object) -> None:
        piece = self._pieces.get(message.request)
        if piece is None:
            self._actions += self._fetchings.answer(message, payload)
            return
        bundle = piece.bundle
        copy = None if payload is None else self._sums.copy(payload)
        slots = [(entry.key_id, entry.index) for entry in message.entries]
        for client in bundle.clients.values():
            if client.link not in self._workers:
                continue
            if client.want_value:
                answer = Value(client.request, message.view, message.version, message.entries)
                body = () if copy is None else (copy,)
                self._actions.append(Send(client.link, answer, body, bundle.priority))
            else:
                self._acknowledge(client, bundle, slots)
        if copy is not None:
            self._actions.append(Release(copy))
        if bundle.answered(slots):
            self._end(bundle)

    def _ack(self, _link: int, message: Ack, _payload: object) -> None:
        piece = self._pieces.get(message.request)
        if piece is None or piece.bundle.want_value:
            return
        bundle = piece.bundle
        slots = [(each.key_id, each.index) for each in message.entries] or bundle.slots
        for client in bundle.clients.values():
            if client.link in self._workers:
                self._acknowledge(client, bundle, slots)
        if bundle.answered(slots):
            self._end(bundle)

    def _acknowledge(self, client: Client, bundle: Bundle, slots: list[tuple[int, int]]) -> None:
        named: tuple[SlotRound, ...] = ()
        if len(slots) < len(bundle.entries):
            named = tuple(SlotRound(*slot, bundle.round) for slot in slots)
        self._send(client.link, Ack(client.request, self._view, named))

    def _rounds_reply(self, _link: int, message: RoundsReply, _payload: object) -> None:
        piece = self._pieces.get(self._questions.pop(message.request, -1))
        if piece is None:
            return
        known = {(each.key_id, each.index): each for each in message.entries}
        for entry in piece.message.entries:
            number = piece.message.round + entry.lead
            found = known.get((entry.key_id, entry.index))
            if found is None or found.next_round <= number or found.version > number:
                self._send_piece(piece)
                return

    def _fault(self, _link: int, message: Fault, _payload: object) -> None:
        piece = None if message.request is None else self._pieces.get(message.request)
        if piece is not None:
            self._decline(piece.bundle, message.text)
        self._actions += self._fetchings.decline(message.request, message.text)

    def _stale(self, _link: int, message: Stale, _payload: object) -> None:
        self._view = max(self._view, message.view)
        piece = None if message.request is None else self._pieces.get(message.request)
        if piece is not None:
            self._decline(piece.bundle, "the membership has changed")
        self._actions += self._fetchings.decline(message.request, "the membership has changed")

    # Time.

    def _tick(self) -> None:
        for way in self._ways.values():
            if way.due_s is None or self._now_s < way.due_s:
                continue
            if way.link is None:
                way.due_s = None
                self._actions.append(Connect(way.node, way.addresses))
            else:
                way.due_s = self._now_s + _ATTACH_RESEND_S
                self._send(way.link, Attach(self._leader, self._incarnation, self._view))
        self._actions += self._fetchings.tick(self._view, self._now_s)
        if self._sweep_s is not None and self._now_s >= self._sweep_s:
            self._sweep()

    def _sweep(self) -> None:
        late_s = self._now_s - _PATIENCE_S
        for bundle in list(self._turns.bundles()):
            is_stuck = bundle.pieces is None or not self._ways[bundle.server].attached
            if is_stuck and bundle.began_s <= late_s:
                self._decline(bundle, f"it waited for {_PATIENCE_S:g} s")
        for piece in self._pieces.values():
            way = self._ways[piece.bundle.server]
            if self._now_s >= piece.due_s and way.attached and way.link is not None:
                piece.pause_s = min(2 * piece.pause_s, _LONGEST_PAUSE * self._pause_s)
                piece.due_s = self._now_s + piece.pause_s
                self._ask_about(way.link, piece)
        has_work = next(iter(self._turns.bundles()), None) is not None
        self._sweep_s = self._now_s + self._pause_s / 4 if has_work else None
        if not has_work:
            self._questions.clear()

    def _ask_about(self, link: int, piece: Piece) -> None:
        """Ask whether a piece has arrived, which costs less than to send it again."""
        number, message = next(self._numbers), piece.message
        rank = next(rank for rank, span in self._spans.items() if span[0] == message.first_shard)
        keys = tuple(dict.fromkeys(entry.key_id for entry in message.entries))
        self._questions[number] = message.request
        # It must not overtake the push it asks about, which may still wait to leave.
        question = Rounds(number, self._view, keys, rank)
        self._actions.append(Send(link, question, (), message.priority))

    def _report(self) -> dict[str, object]:
        attached = sorted(set(self._workers.values()))
        return {
            "node": f"the relay of {self._leader}",
            "workers": attached,
            "open": [
                {
                    "key_id": entry.key_id,
                    "index": entry.index,
                    "round": bundle.round + entry.lead,
                    "missing": _missing(attached, bundle),
                }
                for bundle in self._turns.open_bundles()
                for entry in bundle.entries
            ],
        }

    def _send(self, link: int, message: Message) -> None:
        self._actions.append(Send(link, message))


def _missing(attached: Iterable[int], bundle: Bundle) -> list[int]:
    return [rank for rank in attached if rank not in bundle.clients]
