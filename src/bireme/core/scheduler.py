"""The scheduler's state machine: forms the job, keeps its membership, decides, and ends it.

Fed by ``node.scheduler`` with what its sockets bring, and by ``sim`` under virtual time.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from bireme.core.actions import Action, Close, EndJob, Log, Send
from bireme.core.barriers import Barriers
from bireme.core.events import Event, Received, Tick
from bireme.core.events import Lost as LinkLost
from bireme.core.keys import KeyRegistry
from bireme.core.roster import Roster, Seat
from bireme.core.sites import server_weights, with_frames
from bireme.errors import ConfigError, StateError
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import SCHEDULER, NodeId, Role
from bireme.wire.messages import (
    Abort,
    Barrier,
    BarrierDone,
    Declare,
    Declared,
    Fault,
    FaultCode,
    Heartbeat,
    HeartbeatAck,
    JobConfig,
    Join,
    Joined,
    Leave,
    LeaveAck,
    Lost,
    Message,
    NodeInfo,
    Refused,
    Shutdown,
    Start,
    Status,
    StatusRequest,
    ViewChange,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("LINK_GRACE_S", "Phase", "SchedulerCore")

LINK_GRACE_S = 0.5
"""How long a broken link may take to come back before its node counts as dead."""

_REPORTED_KEYS = 1000

_LEAVE_GATHER_S = 0.05
"""Departures within this time are told in one view, so that a thousand do not make a million."""


class Phase(StrEnum):
    """Where a job stands."""

    FORMING = "forming"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class SchedulerCore:
    """Forms the job, keeps its membership, decides what a death means, and ends it.

    Args:
        config: What the launcher settled.
        host: Name of the scheduler's host, for messages.
        software: Version of the package; a node with another one is refused.

    Raises:
        ConfigError: The shards of the job cannot be cut among its workers.

    Guarantees:
        It ends: when the job does not form within ``start_timeout_s``, when a node dies and the
        policy is to stop, when a replacement does not come within ``replace_timeout_s``, or when
        all workers have left. Every end names its cause.
    """

    def __init__(self, config: JobConfig, *, host: str, software: str = "") -> None:
        self._config = config
        self._host = host
        self._roster = Roster(config, host=host, software=software)
        self._barriers = Barriers()
        self._keys: KeyRegistry | None = None
        self._phase = Phase.FORMING
        self._view = 0
        self._view_s = 0.0
        self._began_s = 0.0
        self._sweep_s = 0.0
        self._grace: dict[NodeId, tuple[float, str]] = {}
        self._vacant_since_s: dict[NodeId, float] = {}
        self._gather_s: float | None = None
        self._ending_s = 0.0
        self._actions: list[Action] = []
        self._receivers: dict[type[Message], Callable[..., None]] = {
            Heartbeat: self._heartbeat,
            Barrier: self._barrier,
            Declare: self._declare,
            Leave: self._leave,
        }

    @property
    def phase(self) -> Phase:
        """Where the job stands."""
        return self._phase

    @property
    def view(self) -> int:
        """The current view; 0 before the job is complete."""
        return self._view

    def start(self, now_s: float) -> list[Action]:
        """Begin: the limit for forming the job runs from here."""
        self._began_s = now_s
        self._sweep_s = now_s + self._config.heartbeat_interval_s
        return []

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due, on the clock of ``now_s``."""
        if self._phase is Phase.ENDED:
            return None
        due = [self._sweep_s, *(limit_s for limit_s, _ in self._grace.values())]
        if self._phase is Phase.FORMING:
            due.append(self._began_s + self._config.start_timeout_s)
        if self._gather_s is not None:
            due.append(self._gather_s)
        if self._phase is Phase.ENDING:
            due.append(self._ending_s + self._config.exit_timeout_s)
        due += [since + self._config.replace_timeout_s for since in self._vacant_since_s.values()]
        return min(due)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event and return what is to be done."""
        if self._phase is Phase.ENDED:
            return []
        if type(event) is Received:
            self._received(event.link, event.message, now_s)
        elif type(event) is LinkLost:
            self._link_lost(event.link, event.reason, now_s)
        elif type(event) is Tick:
            self._tick(now_s)
        actions, self._actions = self._actions, []
        return actions

    # Messages.

    def _received(self, link: int, message: Message, now_s: float) -> None:
        if type(message) is Join:
            self._join(link, message, now_s)
        elif type(message) is StatusRequest:
            self._send(link, Status(message.request, self._report(now_s)))
        elif link not in self._roster.by_link:
            self._send(
                link,
                Refused(
                    "this link belongs to no member of the job; it was declared "
                    "dead, or it never joined"
                ),
            )
            self._actions.append(Close(link))
        else:
            node = self._roster.by_link[link]
            seat = self._roster.seats.get(node)
            if seat is not None:
                seat.heard_s = now_s
            receiver = self._receivers.get(type(message))
            if receiver is None:
                text = f"a scheduler does not take {type(message).__name__}"
                self._send(link, Fault(FaultCode.BAD_REQUEST, text, None))
            else:
                receiver(link, node, message, now_s)

    def _join(self, link: int, join: Join, now_s: float) -> None:
        running = self._phase is Phase.RUNNING
        if self._told_the_end(link, join):
            return
        roster = self._roster
        newest = roster.last_incarnation
        if join.incarnation_hint == 0 and link not in roster.by_link:
            refusal = self._cannot_replace(join) if running else None
            if refusal is not None:
                self._refuse(link, refusal)
                return
            self._make_room(join, now_s)
            if self._over():
                return
        try:
            info = roster.admit(link, join, now_s, running=running)
        except StateError as error:
            self._refuse(link, str(error))
            return
        if info is not None:
            self._grace.pop(info.node, None)
            self._welcome(info)
            if running and info.incarnation > newest:
                self._replaced(info, now_s)
        if not running and roster.complete and not roster.missing():
            self._form(now_s)

    def _make_room(self, join: Join, now_s: float) -> None:
        """A new process that comes for a rank whose link is down shows that its holder is dead."""
        holder = self._roster.holder_without_link(join)
        if holder is None:
            return
        if self._phase is Phase.FORMING:
            self._roster.remove(holder)
            self._grace.pop(holder, None)
        else:
            self._died(holder, "its link broke, and another process came in its place", now_s)

    def _over(self) -> bool:
        return self._phase is Phase.ENDED

    def _told_the_end(self, link: int, join: Join) -> bool:
        """Answer those who come back although the job is over, or over for them."""
        done = self._roster.left.get(NodeId(join.role, join.rank or 0))
        if done is not None and done.incarnation == join.incarnation_hint:
            self._send(link, LeaveAck())
        elif self._phase is not Phase.ENDING:
            return False
        elif join.role is Role.SERVER and join.incarnation_hint:
            self._roster.admit(link, join, self._ending_s, running=True)
            self._send(link, Shutdown())
        else:
            self._refuse(link, "the job is over")
        return True

    def _cannot_replace(self, join: Join) -> str | None:
        """Why a new process may not enter a job that runs; its own lost link is no new process."""
        if join.role is Role.WORKER and self._config.death_policy is not DeathPolicy.ABORT:
            return None
        if join.rank is not None and NodeId(join.role, join.rank) in self._roster.seats:
            return None
        return f"the job runs and takes no new {join.role}"

    def _refuse(self, link: int, reason: str) -> None:
        self._send(link, Refused(reason))
        self._actions.append(Log("warning", f"refused a node: {reason}"))

    def _welcome(self, info: NodeInfo) -> None:
        config = self._config
        self._send_to(
            info.node,
            Joined(
                info.node,
                info.incarnation,
                config.heartbeat_interval_s,
                config.heartbeat_timeout_s,
            ),
        )

    def _heartbeat(self, link: int, node: NodeId, message: Heartbeat, now_s: float) -> None:
        self._send(link, HeartbeatAck(message.sent_s, self._view))
        if node not in self._roster.seats:
            return
        if self._phase is Phase.ENDING:
            self._send(link, Shutdown())
        elif message.view < self._view and now_s > self._view_s + self._config.heartbeat_interval_s:
            if message.view == 0:
                self._send(link, self._start_message(replacement=self._view > 1))
            self._send(link, self._view_message(()))

    def _barrier(self, link: int, node: NodeId, message: Barrier, now_s: float) -> None:
        if node.role is not Role.WORKER or node not in self._roster.seats:
            text = f"{node} takes no part in barriers"
            self._send(link, Fault(FaultCode.WRONG_STATE, text, None))
            return
        done = self._barriers.done(message.name, message.number)
        if done is not None:
            self._send(link, BarrierDone(message.name, done))
            return
        self._barriers.arrive(message.name, message.number, node.rank, now_s)
        self._open_barriers()

    def _open_barriers(self) -> None:
        for name, number, ranks in self._barriers.complete(self._roster.awaited()):
            done = BarrierDone(name, number)
            for rank in ranks:
                self._send_to(NodeId(Role.WORKER, rank), done)

    def _declare(self, link: int, node: NodeId, message: Declare, now_s: float) -> None:
        if self._keys is None:
            text = "keys can be declared when the job has started"
            self._send(link, Fault(FaultCode.WRONG_STATE, text, message.request))
            return
        try:
            placements = self._keys.declare(message.store, message.keys, node)
        except ConfigError as error:
            self._send(link, Fault(FaultCode.BAD_REQUEST, str(error), message.request))
        else:
            self._send(link, Declared(message.request, placements))

    def _leave(self, link: int, node: NodeId, message: Leave, now_s: float) -> None:
        seat = self._roster.seats.get(node)
        if seat is not None and message.reason:
            self._send(link, LeaveAck())
            self._died(node, message.reason, now_s)
            return
        self._send(link, LeaveAck())
        if seat is not None and node.role is Role.SERVER and self._phase is Phase.ENDING:
            self._roster.remove(node)
            self._end_if_gone()
        if seat is None or node.role is not Role.WORKER:
            return
        self._roster.left[node] = self._roster.remove(node).info
        self._open_barriers()
        if self._phase is Phase.RUNNING:
            self._gather_s = now_s + _LEAVE_GATHER_S if self._gather_s is None else self._gather_s
            self._end_if_done(now_s)

    # Membership.

    def _form(self, now_s: float) -> None:
        for info in self._roster.rank_the_rest(now_s):
            self._welcome(info)
        infos = self._roster.infos()
        self._config = with_frames(self._config, infos)
        self._keys = KeyRegistry(server_weights(infos), self._config.slice_bytes)
        self._phase = Phase.RUNNING
        self._view, self._view_s = 1, now_s
        self._broadcast(self._start_message(replacement=False))
        self._actions.append(Log("info", "the job is complete"))

    def _replaced(self, info: NodeInfo, now_s: float) -> None:
        self._vacant_since_s.pop(info.node, None)
        self._new_view(now_s)
        self._send_to(info.node, self._start_message(replacement=True))
        self._broadcast(self._view_message((info,)))
        self._actions.append(Log("info", f"{info.node} is replaced by a process on {info.host}"))

    def _start_message(self, *, replacement: bool) -> Start:
        return Start(self._view, self._roster.infos(), self._config, replacement=replacement)

    def _view_message(self, joined: tuple[NodeInfo, ...]) -> ViewChange:
        roster = self._roster
        return ViewChange(
            self._view, roster.infos(), tuple(roster.lost.values()), joined, tuple(roster.left)
        )

    def _new_view(self, now_s: float) -> None:
        self._view += 1
        self._view_s = now_s
        self._gather_s = None

    def _link_lost(self, link: int, reason: str, now_s: float) -> None:
        seat = self._roster.unbind(link)
        if seat is None:
            return
        self._grace[seat.info.node] = (now_s + LINK_GRACE_S, reason)

    def _died(self, node: NodeId, reason: str, now_s: float) -> None:
        seat = self._roster.remove(node)
        self._grace.pop(node, None)
        info = seat.info
        policy = self._config.death_policy
        if self._phase is Phase.ENDING:
            self._close(seat)
            self._end_if_gone()
        elif self._phase is Phase.FORMING and policy is not DeathPolicy.ABORT:
            self._close(seat)
        elif node.role is Role.SERVER or policy is DeathPolicy.ABORT:
            self._abort(info, reason, now_s)
        elif policy is DeathPolicy.CONTINUE and not any(self._roster.workers()):
            self._abort(info, f"{reason}; it was the last worker", now_s)
        else:
            self._roster.lost[node] = Lost(node, info.incarnation, info.host, reason)
            if policy is DeathPolicy.WAIT:
                self._vacant_since_s[node] = now_s
            self._close(seat)
            self._new_view(now_s)
            self._broadcast(self._view_message(()))
            self._open_barriers()
            self._actions.append(Log("warning", f"{node} on {info.host} is dead: {reason}"))

    def _close(self, seat: Seat) -> None:
        if seat.link is not None:
            self._roster.by_link.pop(seat.link, None)
            self._actions.append(Close(seat.link))

    def _abort(self, culprit: NodeInfo | None, reason: str, now_s: float) -> None:
        node = None if culprit is None else culprit.node
        host = self._host if culprit is None else culprit.host
        self._broadcast(Abort(node, host, reason, 1))
        self._finish(1, reason if node is None else f"{node} on {host}: {reason}")

    def _end_if_done(self, now_s: float) -> None:
        if any(self._roster.workers()) or self._vacant_since_s:
            return
        self._phase = Phase.ENDING
        self._ending_s = now_s
        for seat in self._roster.servers():
            self._send_to(seat.info.node, Shutdown())
        self._end_if_gone()

    def _end_if_gone(self) -> None:
        if not self._roster.seats:
            self._finish(0, "all workers have left")

    def _finish(self, exit_code: int, text: str) -> None:
        self._phase = Phase.ENDED
        self._actions.append(EndJob(exit_code, text))

    # Time.

    def _tick(self, now_s: float) -> None:
        config = self._config
        if self._phase is Phase.FORMING and now_s >= self._began_s + config.start_timeout_s:
            missing = ", ".join(str(node) for node in self._roster.missing())
            text = f"the job did not form within {config.start_timeout_s:g} s: {missing} missing"
            self._abort(None, text, now_s)
        elif self._phase is Phase.ENDING and now_s >= self._ending_s + config.exit_timeout_s:
            names = ", ".join(str(node) for node in sorted(self._roster.seats))
            self._finish(0, f"all workers have left; {names} did not end in time")
        else:
            self._look_for_dead(now_s)
            self._look_for_vacant(now_s)
            if self._gather_s is not None and now_s >= self._gather_s:
                self._new_view(now_s)
                if self._phase is Phase.RUNNING:
                    self._broadcast(self._view_message(()))

    def _look_for_dead(self, now_s: float) -> None:
        dead = [(node, why) for node, (limit_s, why) in self._grace.items() if now_s >= limit_s]
        if now_s >= self._sweep_s:
            self._sweep_s = now_s + self._config.heartbeat_interval_s
            limit_s = now_s - self._config.heartbeat_timeout_s
            dead += [
                (node, f"silent for {now_s - seat.heard_s:.1f} s")
                for node, seat in self._roster.seats.items()
                if seat.heard_s <= limit_s and node not in self._grace
            ]
        for node, why in dead:
            if self._phase is not Phase.ENDED and node in self._roster.seats:
                self._died(node, why, now_s)

    def _look_for_vacant(self, now_s: float) -> None:
        limit_s = self._config.replace_timeout_s
        for node, since_s in list(self._vacant_since_s.items()):
            if self._phase is Phase.RUNNING and now_s >= since_s + limit_s:
                lost = self._roster.lost[node]
                info = NodeInfo(node, lost.incarnation, lost.host, 0, ())
                text = f"{lost.reason}; no replacement came within {limit_s:g} s"
                self._abort(info, text, now_s)

    # Sending, reporting.

    def _send(self, link: int, message: Message) -> None:
        self._actions.append(Send(link, message))

    def _send_to(self, node: NodeId, message: Message) -> None:
        seat = self._roster.seats.get(node)
        if seat is not None and seat.link is not None:
            self._actions.append(Send(seat.link, message))

    def _broadcast(self, message: Message) -> None:
        for seat in self._roster.seats.values():
            if seat.link is not None:
                self._actions.append(Send(seat.link, message))

    def _report(self, now_s: float) -> dict[str, object]:
        roster = self._roster
        return {
            "node": str(SCHEDULER),
            "phase": str(self._phase),
            "view": self._view,
            "nodes": [
                {
                    "node": str(seat.info.node),
                    "incarnation": seat.info.incarnation,
                    "host": seat.info.host,
                    "pid": seat.info.pid,
                    "addresses": list(seat.info.addresses),
                    "silent_s": round(now_s - seat.heard_s, 3),
                    "linked": seat.link is not None,
                }
                for _, seat in sorted(roster.seats.items())
            ],
            "missing": [str(node) for node in roster.missing() if node not in roster.left],
            "lost": [f"{lost.node} on {lost.host}: {lost.reason}" for lost in roster.lost.values()],
            "left": [str(node) for node in sorted(roster.left)],
            "barriers": self._barriers.report(roster.awaited(), now_s),
            "peers": [[link, str(node)] for link, node in roster.by_link.items()],
            "num_keys": 0 if self._keys is None else len(self._keys),
            "keys": [] if self._keys is None else self._keys.report(_REPORTED_KEYS),
        }
