"""The worker's state machine: carries out the calls of its user.

Fed by ``node.worker`` with calls and with what its sockets bring, and by ``sim`` under virtual
time. Membership is in ``member``, links in ``routes``, the order of pushes in ``lanes``, what is
unanswered on the ``desk``, what calls ask for in ``asking``, and what answers do in ``answers``.
"""

from typing import cast

from bireme.core.actions import Action, Close, EndJob, Fail, Log
from bireme.core.answers import Answers
from bireme.core.asking import Asking
from bireme.core.bunches import Cut
from bireme.core.calls import (
    Call,
    LeaveCall,
    PushCall,
    ReadyCall,
)
from bireme.core.desk import Desk
from bireme.core.events import ConnectFailed, Event, Linked, Lost, Received, Tick
from bireme.core.express import ExpressDesk
from bireme.core.member import Identity, Member
from bireme.core.neighbours import neighbours_of
from bireme.core.requests import SCHEDULER_RANK
from bireme.errors import BiremeError, JobAborted, StateError
from bireme.types.nodes import NodeId, Role
from bireme.wire.messages import Attach, Attached, Joined, LeaveAck, Pong, Rows, Start, Value

__all__ = ("WorkerCore",)


class WorkerCore:
    """Carries out the calls of a worker's user.

    Args:
        identity: Who this process is.
        cut: Takes the payloads of bunches apart; without it there may be no bunches.

    Guarantees:
        Every call ends in one ``Complete`` or ``Fail``, within its limit and the second that it
        takes to ask who is missing. A push that was handed in is delivered exactly once, however
        often messages are lost or links break, as long as the worker lives; its payload is
        released when it is acknowledged or refused.
    """

    def __init__(self, identity: Identity, *, cut: Cut | None = None) -> None:
        self._member = Member(identity)
        self._desk = Desk(self._member, cut)
        self._answers = Answers(self._desk)
        self.express = ExpressDesk(self._desk)
        """The short way of calls and answers that repeat."""
        self._view = 0
        self._ready_calls: list[int] = []
        self._asking = Asking(self._desk)

    @property
    def node(self) -> NodeId | None:
        """This worker's name, once the scheduler has given it."""
        return self._member.node

    @property
    def view(self) -> int:
        """Newest view known; 0 before the job is complete."""
        return self._view

    @property
    def started(self) -> Start | None:
        """What the scheduler said when the job was complete."""
        return self._member.started

    @property
    def slice_bytes(self) -> int:
        """Greatest size of a slice; known once the job has started."""
        return self._member.config.slice_bytes

    @property
    def ended(self) -> EndJob | None:
        """How the job ended for this node, once it did."""
        return self._member.ended

    @property
    def lost_ranks(self) -> frozenset[int]:
        """Ranks of workers that died and are not replaced."""
        return self._member.lost

    def start(self, now_s: float) -> list[Action]:
        """Begin: returns the ``Connect`` to the scheduler."""
        return self._member.start(now_s)

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due, on the clock of ``now_s``."""
        if self._member.ended is not None:
            return None
        due_s = self._member.next_deadline_s()
        desk = self._desk
        for each in (
            desk.next_deadline_s(),
            desk.routes.next_deadline_s(),
            desk.handing.next_deadline_s(),
        ):
            if each is not None and (due_s is None or each < due_s):
                due_s = each
        return due_s

    def expects(self, message: Value | Rows) -> tuple[int | None, ...]:
        """Return, for each entry, the call that waits for it, or ``None`` for a late duplicate.

        For a shell that receives payloads straight into their destination: it asks when the head
        has arrived, and throws away the bytes of entries that nobody waits for.
        """
        return self._answers.expects(message)

    def handle(self, event: Event | Call, now_s: float) -> list[Action]:
        """Take one event or call and return what is to be done."""
        desk = self._desk
        desk.now_s = now_s
        if self._member.ended is not None:
            return [Fail(event.call, self._over())] if isinstance(event, Call) else []
        if type(event) is Received:
            self._received(event, now_s)
        elif type(event) is PushCall and self._view:
            try:
                self._asking.push(event)
            except BiremeError as error:
                desk.actions.append(Fail(event.call, error))
        elif type(event) is Tick:
            self._tick(now_s)
        elif type(event) is Linked:
            self._linked(event, now_s)
        elif type(event) is Lost:
            self._lost(event, now_s)
        elif type(event) is ConnectFailed:
            self._connect_failed(event, now_s)
        else:
            self._ask(cast("Call", event))
        if desk.member.ended is not None:
            self._close_if_ended()
        return desk.take()

    # Events.

    def _received(self, event: Received, now_s: float) -> None:
        desk, message = self._desk, event.message
        if event.link == self._member.link:
            actions = self._member.received(message, now_s)
            if actions is not None:
                desk.actions += actions
                if type(message) is Joined:
                    desk.reached(SCHEDULER_RANK)
                self._follow_view()
                return
        if self._answers.take(message, event.payload):
            return
        if type(message) is Attached:
            self._attached(event.link)
        elif type(message) is LeaveAck:
            self._left()
        elif type(message) is Pong:
            if self._member.prober.concerns(event):
                desk.actions += self._member.probing(event, now_s)
        else:
            text = f"ignored a {type(message).__name__}, which is not for a worker"
            desk.actions.append(Log("warning", text))

    def _follow_view(self) -> None:
        member, desk = self._member, self._desk
        if member.view == self._view or member.ended is not None:
            return
        if self._view == 0:
            assert member.node is not None
            config, rank = member.config, member.node.rank
            shards, workers = config.num_shards, config.num_workers
            desk.lanes.rank = desk.lanes.turn = rank
            desk.lanes.bundle_bytes = config.bundle_bytes
            desk.lanes.span = (rank * shards // workers, (rank + 1) * shards // workers)
            desk.actions += desk.routes.begin(list(member.nodes.values()))
            for server in desk.routes.ranks():
                desk.lanes.add_server(server)
            self._look_for_relay()
        self._view = member.view
        desk.view_changed()

    def _look_for_relay(self) -> None:
        member, desk = self._member, self._desk
        assert member.node is not None
        host = member.nodes[member.node].host
        neighbours = neighbours_of(host, member.nodes.values(), member.config)
        if neighbours is not None:
            desk.lanes.turn = neighbours.turn
        desk.actions += desk.handing.begin(
            neighbours, member.node, member.view, member.incarnation, member.config, desk.now_s
        )

    def _attached(self, link: int) -> None:
        desk = self._desk
        if desk.handing.heard(link):
            self._complete_ready()
            return
        server = desk.routes.server_at(link)
        if server is None or desk.routes.link_to(server) == link:
            return
        desk.routes.attached(link)
        desk.reached(server)
        self._complete_ready()

    def _complete_ready(self) -> None:
        desk = self._desk
        if not (self._member.started and desk.routes.complete and desk.handing.settled):
            return
        for number in self._ready_calls:
            call = self._desk.calls.get(number)
            if call is not None:
                self._desk.complete(call, self._member.started)
        self._ready_calls.clear()

    def _linked(self, event: Linked, now_s: float) -> None:
        if self._member.prober.concerns(event):
            self._desk.actions += self._member.probing(event, now_s)
        elif event.node.role is Role.SERVER:
            self._desk.actions += self._desk.routes.linked(
                event.link, event.node, self._attach(), now_s
            )
        elif event.node.role is Role.WORKER:
            self._desk.actions += self._desk.handing.linked(event.link, self._attach(), now_s)
        else:
            self._desk.actions += self._member.linked(event.link, now_s)

    def _lost(self, event: Lost, now_s: float) -> None:
        leaving = self._member.leaving
        if event.link == self._member.link:
            self._desk.actions += self._member.lost_link(event.reason, now_s)
        elif self._member.prober.concerns(event):
            self._desk.actions += self._member.probing(event, now_s)
        elif event.link == self._desk.handing.link:
            idle = leaving or not any(each.by_relay for each in self._desk.requests.values())
            self._desk.actions += self._desk.handing.lost(event.reason, is_expected=idle)
            self._without_relay()
        else:
            self._desk.actions += self._desk.routes.lost(
                event.link, event.reason, is_expected=leaving
            )

    def _without_relay(self) -> None:
        self._desk.relay_lost()
        self._complete_ready()

    def _connect_failed(self, event: ConnectFailed, now_s: float) -> None:
        if self._member.prober.concerns(event):
            self._desk.actions += self._member.probing(event, now_s)
        elif event.node.role is Role.SERVER:
            self._desk.routes.connect_failed(event.node, now_s)
        elif event.node.role is Role.WORKER:
            self._desk.handing.connect_failed(now_s)
        else:
            self._desk.actions += self._member.connect_failed(event.reason, now_s)

    def _tick(self, now_s: float) -> None:
        desk = self._desk
        desk.actions += self._member.tick(now_s)
        if self._view:
            desk.actions += desk.routes.tick(self._attach(), now_s)
            given_up = desk.handing.tick(self._attach(), now_s)
            desk.actions += given_up
            if given_up and desk.handing.settled:
                self._without_relay()
        desk.tick()

    def _attach(self) -> Attach:
        member = self._member
        assert member.node is not None
        return Attach(member.node, member.incarnation, member.view)

    # The end.

    def _left(self) -> None:
        desk = self._desk
        for call in desk.calls.all():
            if isinstance(call.call, LeaveCall):
                desk.complete(call)
                self._member.leave()

    def _close_if_ended(self) -> None:
        desk, ended = self._desk, self._member.ended
        assert ended is not None
        for call in desk.calls.all():
            if isinstance(call.call, LeaveCall) and self._member.leaving:
                desk.complete(call)
        desk.abandon(self._over())
        desk.actions += [Close(link) for link in desk.routes.links()]
        if desk.handing.link is not None:
            desk.actions.append(Close(desk.handing.link))
        if self._member.link is not None:
            desk.actions.append(Close(self._member.link))
        desk.actions.append(ended)

    def _over(self) -> BiremeError:
        ended = self._member.ended
        assert ended is not None
        if ended.exit_code == 0:
            return StateError(f"this worker's part in the job is over: {ended.text}")
        return JobAborted(ended.text)

    # Calls.

    def _ask(self, call: Call) -> None:
        if self._view == 0 and not isinstance(call, ReadyCall | LeaveCall):
            error = StateError("the job has not started; wait for it first")
            self._desk.actions.append(Fail(call.call, error))
            return
        try:
            if isinstance(call, ReadyCall):
                self._ask_ready(call)
            else:
                self._asking.ask(call)
        except BiremeError as error:
            self._desk.actions.append(Fail(call.call, error))

    def _ask_ready(self, call: ReadyCall) -> None:
        self._desk.calls.open(call, self._desk.now_s)
        self._ready_calls.append(call.call)
        self._complete_ready()
