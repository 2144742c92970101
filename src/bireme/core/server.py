"""The server's state machine: who may talk to it, in which view, and what it does for them.

Fed by ``node.server`` with what its sockets bring, and by ``sim`` under virtual time. A request
that cannot be served is answered with a ``Fault``; no message makes a server fail.
"""

from typing import cast

from bireme.consistency.base import mask_of
from bireme.core.actions import Action, Close, Fill, Log, Send
from bireme.core.commands import CommandLog
from bireme.core.defects import describe_defect, refusal_of
from bireme.core.events import ConnectFailed, Event, Linked, Lost, Received
from bireme.core.express import ExpressShelf
from bireme.core.member import Identity, Member
from bireme.core.outlet import Peer
from bireme.core.replies import Replies, fault_code
from bireme.core.slots import Crew
from bireme.core.values import SlotValues
from bireme.errors import BiremeError, ConfigError, StateError
from bireme.types.nodes import SCHEDULER, NodeId, Role
from bireme.wire.messages import (
    Attach,
    Attached,
    Command,
    CommandDone,
    CommandKind,
    Fault,
    Init,
    JointPush,
    Leave,
    Message,
    Ping,
    Pong,
    Pull,
    PullRows,
    Push,
    Rounds,
    Status,
    StatusRequest,
)

__all__ = ("ServerCore",)

_OfAView = Push | JointPush | Pull | PullRows | Init | Command | Rounds
_OF_A_VIEW: frozenset[type[Message]] = frozenset(
    {Push, JointPush, Pull, PullRows, Init, Command, Rounds}
)
_FROM_ANYBODY: frozenset[type[Message]] = frozenset({Attach, StatusRequest, Ping})
"""What is answered on a link that has not been attached."""


class ServerCore:
    """Adds up contributions, keeps values, answers pulls; never dies of a bad request.

    Args:
        identity: Who this process is.
        values: The arithmetic.

    Guarantees:
        Each (slot, number, rank) is applied at most once. A repeated push is answered again, one
        with a gap is refused, one of an older view or of a dead incarnation changes nothing.
        Memory: one value for each slot, the partial sums of its open round, and a few numbers
        for each rank.
    """

    def __init__(self, identity: Identity, values: SlotValues) -> None:
        self._member = Member(identity)
        self._values = values
        self._replies = Replies()
        self._peers: dict[int, Peer] = {}
        self._shelf = ExpressShelf(values, self._replies, self._peers)
        self._early: dict[int, Attach] = {}
        """By link, the newest of those that know a view which is not known here yet."""
        self._commands = CommandLog()
        self._outcomes: dict[int, tuple[int, Message]] = {}
        """The answer to the newest command of each rank, in case it is lost."""
        self._crew: Crew | None = None
        self._view = 0
        self._leader = 0
        self._gave_up = False

    @property
    def node(self) -> NodeId | None:
        """This server's name, once the scheduler has given it."""
        return self._member.node

    @property
    def view(self) -> int:
        """Newest view known; 0 before the job is complete."""
        return self._view

    @property
    def ended(self) -> bool:
        """Whether the job is over for this node."""
        return self._member.ended is not None

    def start(self, now_s: float) -> list[Action]:
        """Begin: returns the ``Connect`` to the scheduler."""
        return self._member.start(now_s)

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due, on the clock of ``now_s``."""
        return self._member.next_deadline_s()

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event and return what is to be done."""
        if self._member.ended is not None:
            return []
        if type(event) is Received:
            return self._received(event, now_s)
        if self._member.prober.concerns(event):
            actions = self._member.probing(event, now_s)
        elif type(event) is Linked:
            actions = self._member.linked(event.link, now_s)
        elif type(event) is ConnectFailed:
            actions = self._member.connect_failed(event.reason, now_s)
        elif type(event) is Lost:
            actions = self._lost(event, now_s)
        else:
            actions = self._member.tick(now_s)
        return actions + self._farewell()

    def _received(self, event: Received, now_s: float) -> list[Action]:
        actions: list[Action] = []
        peer = self._peers.get(event.link)
        try:
            if peer is None:
                actions = self._from_stranger(event, now_s)
            elif self._gave_up:
                pass
            elif type(event.message) is Push and event.message.view >= self._view:
                self._shelf.push(event.link, peer, event.message, event.payload, now_s)
            else:
                self._from_worker(event.link, peer, event.message, event.payload, now_s)
        except Exception as error:  # nobody knows how far it came
            self._shelf.failure = describe_defect(error)
        if self._shelf.failure is not None:
            self._give_up(self._shelf.failure)
        actions += self._replies.take(self._view)
        return actions if peer is not None else actions + self._farewell()

    def push_again(
        self, link: int, push: Push, numbers: tuple[int, int], payload: object, now_s: float
    ) -> list[Action] | None:
        """Take a push that is like an earlier one of the same link, in the fewest steps.

        Args:
            link: By which it came.
            push: The earlier one.
            numbers: The new one's request and round.
            payload: The new one's payload; read during the call only.
            now_s: The time.

        Returns:
            What is to be done, as of ``handle``. ``None``, with nothing changed, if it is not just
            what is expected next: then ``handle`` takes the message.
        """
        peer = self._peers.get(link)
        if peer is None or push.view != self._view or self._gave_up or self._member.ended:
            return None
        shelf = self._shelf
        try:
            if not shelf.push_again(link, peer, push, numbers, payload, now_s):
                return None
        except Exception as error:  # nobody knows how far it came
            shelf.failure = describe_defect(error)
        if shelf.failure is not None:
            self._give_up(shelf.failure)
        return self._replies.take(self._view)

    def _farewell(self) -> list[Action]:
        ended, link = self._member.ended, self._member.link
        if ended is None:
            return []
        actions: list[Action] = [*map(Close, self._peers)]
        if link is not None:
            actions += [Send(link, Leave()), Close(link)]
        return [*actions, ended]

    def _from_worker(
        self, link: int, peer: Peer, message: Message, payload: object, now_s: float
    ) -> None:
        shelf = self._shelf
        if type(message) in _OF_A_VIEW and cast("_OfAView", message).view < self._view:
            request = message.number if type(message) is Command else message.request  # type: ignore[attr-defined]
            self._replies.stale(link, request, self._view)
        elif type(message) is JointPush:
            shelf.joint_push(link, peer, message, payload, now_s)
        elif type(message) is Pull:
            shelf.pull(link, peer, message)
        elif type(message) is PullRows:
            shelf.pull_rows(link, peer, message, payload)
        elif type(message) is Init:
            shelf.init(link, message, payload, now_s)
        elif type(message) is Command:
            self._command(link, peer, message, payload)
        elif type(message) is Rounds:
            shelf.rounds(link, peer, message)
        else:
            self._other(link, message, now_s)

    def _from_stranger(self, event: Received, now_s: float) -> list[Action]:
        link, message = event.link, event.message
        if link == self._member.link:
            actions = self._member.received(message, now_s)
            if actions is not None:
                if self._member.view != self._view:
                    self._take_view()
                return actions
        elif type(message) is Pong:
            return self._member.probing(event, now_s) if self._member.prober.concerns(event) else []
        elif type(message) not in _FROM_ANYBODY:
            self._replies.fault(
                link, None, StateError("the first message on a link to a server is Attach")
            )
            return []
        self._other(link, message, now_s)
        return []

    def _other(self, link: int, message: Message, now_s: float) -> None:
        if type(message) is StatusRequest:
            report = {"node": str(self._member.node), "view": self._view}
            report |= self._shelf.report(now_s)
            report["peers"] = self._linked_peers()
            self._replies.add(Send(link, Status(message.request, report)))
        elif type(message) is Ping:
            self._replies.add(Fill(link, Pong(message.number, message.size_bytes)))
        elif type(message) is Attach:
            self._attach(link, message)
        elif type(message) is Leave:
            self._peers.pop(link, None)
        else:
            kind = type(message).__name__
            self._replies.fault(link, None, ConfigError(f"a server does not take {kind}"))

    def _linked_peers(self) -> list[object]:
        peers: list[object] = [[link, f"W[{peer.rank}]"] for link, peer in self._peers.items()]
        if self._member.link is not None:
            peers.append([self._member.link, str(SCHEDULER)])
        return peers

    # Membership.

    def _attach(self, link: int, message: Attach) -> None:
        if message.view > self._view:
            self._early[link] = message
            return
        info = self._member.nodes.get(message.node)
        if message.node.role is not Role.WORKER or info is None:
            self._reject(link, f"{message.node} is not alive in view {self._view}")
        elif info.incarnation != message.incarnation:
            self._reject(
                link,
                f"incarnation {message.incarnation} of {message.node} was declared dead; "
                f"incarnation {info.incarnation} has its place",
            )
        else:
            assert self._crew is not None
            assert self._member.node is not None
            rank = message.node.rank
            span = self._crew.span(rank)
            node = self._crew.tree.node(*span)
            self._peers[link] = Peer(rank, message.incarnation, node, span)
            attached = Attached(self._member.node, self._member.incarnation, self._view)
            self._replies.add(Send(link, attached))

    def _reject(self, link: int, text: str) -> None:
        self._replies.fault(link, None, StateError(text))
        self._replies.add(Close(link))

    def _take_view(self) -> None:
        member = self._member
        if self._crew is None:
            self._crew = Crew(member.config.num_workers, member.config.num_shards)
            self._replies.bundle_bytes = member.config.bundle_bytes
        self._view = member.view
        self._crew.set_members(
            lost=mask_of(member.lost),
            left=mask_of(member.left),
            replaced=member.vacant_ranks_are_awaited,
        )
        for link, peer in list(self._peers.items()):
            info = member.nodes.get(NodeId(Role.WORKER, peer.rank))
            if info is None or info.incarnation != peer.incarnation:
                del self._peers[link]
                self._replies.add(Close(link))
        awaited = member.awaited()
        if awaited and awaited[0] != self._leader:
            self._leader = awaited[0]
            self._commands.succeed(self._leader, self._carry_out_late)
        self._shelf.set_view(self._view, self._crew)
        early, self._early = self._early, {}
        for link, message in early.items():
            self._attach(link, message)

    def _lost(self, event: Lost, now_s: float) -> list[Action]:
        if event.link == self._member.link:
            return self._member.lost_link(event.reason, now_s)
        self._early.pop(event.link, None)
        self._peers.pop(event.link, None)
        return []

    def _give_up(self, failure: str) -> None:
        if self._member.link is not None and not self._gave_up:
            self._gave_up = True
            self._replies.add(Log("error", failure))
            self._replies.add(Send(self._member.link, Leave(failure)))

    # Commands.

    def _command(self, link: int, peer: Peer, message: Command, payload: object) -> None:
        try:
            verdict = self._commands.take(peer.rank, peer.incarnation, message, self._leader)
        except StateError as error:
            self._replies.fault(link, message.number, error)
            return
        if message.command is CommandKind.SAVE_STATE:
            verdict = "do"
        if verdict == "repeated":
            number, answer = self._outcomes[peer.rank]
            if number == message.number:
                self._replies.add(Send(link, answer))
            return
        body: dict[str, object] = {"applied_by": self._leader}
        handle, size = None, 0
        answer = CommandDone(message.number, body)
        if verdict == "do":
            self._shelf.single_slots()
            try:
                body, handle, size = self._values.command(
                    message.store, message.command, message.body, payload
                )
                answer = CommandDone(message.number, body, size)
            except Exception as error:
                only_reads = message.command is CommandKind.SAVE_STATE
                if not (only_reads or isinstance(error, BiremeError)):
                    raise
                refusal = refusal_of(error)
                answer = Fault(fault_code(refusal), str(refusal), message.number)
        self._outcomes[peer.rank] = (message.number, answer)
        self._replies.add(Send(link, answer, () if handle is None else (handle,)))

    def _carry_out_late(self, command: Command) -> None:
        self._shelf.single_slots()
        try:
            self._values.command(command.store, command.command, command.body, None)
        except BiremeError as error:
            self._replies.add(Log("error", f"{command.command} of a new leader: {error}"))
