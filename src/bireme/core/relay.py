"""The relay's state machine: pushes and pulls once for all workers of a machine.

It runs beside the first worker of a machine, whose name it bears towards the servers. Fed by
``node.relay`` with what its sockets bring, and by ``sim`` under virtual time. Whatever it cannot do
it declines, and the worker pushes for itself: so nothing depends on it but bytes on a link.
"""

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bireme.core.actions import Action, Close, Log, Release, Send
from bireme.core.delivering import Deliveries
from bireme.core.events import ConnectFailed, Event, Linked, Lost, Received
from bireme.core.fetching import Fetchings
from bireme.core.gathering import Bundle, Client, RelaySums, is_plain
from bireme.core.neighbours import Neighbours
from bireme.core.tree import Tree
from bireme.core.turns import Turns
from bireme.core.ways import Ways
from bireme.types.nodes import Role
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

_PATIENCE_S = 10.0
"""How long a push waits here for the same push of the other workers, then its worker sends it."""


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
        self._ways = Ways(self._leader, incarnation, neighbours.servers)
        self._workers: dict[int, int] = {}
        """Rank of each local worker, by link."""
        self._turns = Turns()
        self._numbers = itertools.count()
        self._deliveries = Deliveries(self._ways, self._spans, self._numbers, self._pause_s)
        self._fetchings = Fetchings(
            self._workers, self._ways.link_to, sums, self._numbers, self._pause_s
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
        return self._ways.start()

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due."""
        due_s = self._ways.next_deadline_s()
        for each in (self._sweep_s, self._fetchings.next_deadline_s()):
            if each is not None and (due_s is None or each < due_s):
                due_s = each
        return due_s

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event and return what is to be done."""
        self._now_s = now_s
        if type(event) is Received:
            self._received(event.link, event.message, event.payload)
        elif type(event) is Linked:
            self._actions += self._ways.linked(event.link, event.node, self._view, now_s)
        elif type(event) is ConnectFailed:
            self._ways.failed(event.node.rank, now_s)
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
        elif link in self._workers or link in self._ways.by_link:
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

    def _attached(self, link: int, _message: Attached, _payload: object) -> None:
        server = self._ways.attached(link)
        if server is not None:
            self._actions += self._deliveries.reached(server, self._now_s)
            self._actions += self._fetchings.reached(server, self._view, self._now_s)

    def _lost(self, link: int, reason: str) -> None:
        if link in self._ways.by_link:
            is_needed = bool(self._deliveries.pieces) or self._fetchings.is_waiting
            self._actions += self._ways.lost(link, reason, is_needed=is_needed)
        else:
            self._worker_gone(link)

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
        if message.rank != self._workers.get(link) or message.server not in self._ways.by_rank:
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
        if message.rank != self._workers.get(link) or message.server not in self._ways.by_rank:
            self._send(link, Declined(message.request, "this relay does not serve it"))
            return
        self._view = max(self._view, message.view)
        self._actions += self._fetchings.ask(link, message, self._view, self._now_s)

    def _close_if_complete(self, bundle: Bundle) -> None:
        if bundle.pieces is not None or any(
            rank not in bundle.clients for rank in self._workers.values()
        ):
            return
        spans = {rank: self._spans[rank] for rank in bundle.clients}
        for piece in bundle.close(self._leader.rank, self._view, spans, self._numbers):
            self._actions += self._deliveries.send(piece, self._now_s)

    def _decline(self, bundle: Bundle, reason: str) -> None:
        for client in bundle.clients.values():
            if client.link in self._workers:
                self._send(client.link, Declined(client.request, reason))
        self._actions.append(Log("info", f"the relay declines a push: {reason}"))
        self._end(bundle)

    def _end(self, bundle: Bundle) -> None:
        for piece in bundle.pieces or ():
            self._deliveries.pieces.pop(piece.message.request, None)
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
        piece = self._deliveries.pieces.get(message.request)
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
        piece = self._deliveries.pieces.get(message.request)
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
        self._actions += self._deliveries.replied(message, self._now_s)

    def _fault(self, _link: int, message: Fault, _payload: object) -> None:
        piece = None if message.request is None else self._deliveries.pieces.get(message.request)
        if piece is not None:
            self._decline(piece.bundle, message.text)
        self._actions += self._fetchings.decline(message.request, message.text)

    def _stale(self, _link: int, message: Stale, _payload: object) -> None:
        self._view = max(self._view, message.view)
        piece = None if message.request is None else self._deliveries.pieces.get(message.request)
        if piece is not None:
            self._decline(piece.bundle, "the membership has changed")
        self._actions += self._fetchings.decline(message.request, "the membership has changed")

    # Time.

    def _tick(self) -> None:
        self._actions += self._ways.tick(self._view, self._now_s)
        self._actions += self._fetchings.tick(self._view, self._now_s)
        if self._sweep_s is not None and self._now_s >= self._sweep_s:
            self._sweep()

    def _sweep(self) -> None:
        late_s = self._now_s - _PATIENCE_S
        for bundle in list(self._turns.bundles()):
            is_stuck = bundle.pieces is None or self._ways.link_to(bundle.server) is None
            if is_stuck and bundle.began_s <= late_s:
                self._decline(bundle, f"it waited for {_PATIENCE_S:g} s")
        self._actions += self._deliveries.tick(self._view, self._now_s)
        has_work = next(iter(self._turns.bundles()), None) is not None
        self._sweep_s = self._now_s + self._pause_s / 4 if has_work else None

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
