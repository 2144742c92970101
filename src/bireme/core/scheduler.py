"""The scheduler's state machine: forms the job, keeps its membership, decides, and ends it.

Fed by ``node.scheduler`` with what its sockets bring, and by ``sim`` under virtual time.
"""

from typing import TYPE_CHECKING

from bireme.core.actions import Action, Close, Log
from bireme.core.events import Event, Received, Tick
from bireme.core.events import Lost as LinkLost
from bireme.core.membership import LINK_GRACE_S, Membership, Phase
from bireme.core.roster import Roster
from bireme.errors import ConfigError, StateError
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import SCHEDULER, NodeId, Role
from bireme.wire.messages import (
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
    Leave,
    LeaveAck,
    Message,
    Probed,
    Refused,
    Shutdown,
    Status,
    StatusRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("LINK_GRACE_S", "Phase", "SchedulerCore")

_REPORTED_KEYS = 1000


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
        self._job = Membership(config, Roster(config, host=host, software=software), host)
        self._knocks: dict[NodeId, float] = {}
        """When a process first came for the place of a worker that seems to live."""
        self._receivers: dict[type[Message], Callable[..., None]] = {
            Heartbeat: self._heartbeat,
            Barrier: self._barrier,
            Declare: self._declare,
            Leave: self._leave,
            Probed: self._probed,
        }

    @property
    def phase(self) -> Phase:
        """Where the job stands."""
        return self._job.phase

    @property
    def view(self) -> int:
        """The current view; 0 before the job is complete."""
        return self._job.view

    def start(self, now_s: float) -> list[Action]:
        """Begin: the limit for forming the job runs from here."""
        self._job.start(now_s)
        return []

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due, on the clock of ``now_s``."""
        return self._job.next_deadline_s()

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event and return what is to be done."""
        if self._job.phase is Phase.ENDED:
            return []
        if type(event) is Received:
            self._received(event.link, event.message, now_s)
        elif type(event) is LinkLost:
            self._job.link_lost(event.link, event.reason, now_s)
        elif type(event) is Tick:
            self._job.tick(now_s)
        actions, self._job.actions = self._job.actions, []
        return actions

    # Messages.

    def _received(self, link: int, message: Message, now_s: float) -> None:
        if type(message) is Join:
            self._join(link, message, now_s)
        elif type(message) is StatusRequest:
            self._job.send(link, Status(message.request, self._report(now_s)))
        elif link not in self._job.roster.by_link:
            self._job.send(
                link,
                Refused(
                    "this link belongs to no member of the job; it was declared "
                    "dead, or it never joined"
                ),
            )
            self._job.actions.append(Close(link))
        else:
            node = self._job.roster.by_link[link]
            seat = self._job.roster.seats.get(node)
            if seat is not None:
                seat.heard_s = now_s
            receiver = self._receivers.get(type(message))
            if receiver is None:
                text = f"a scheduler does not take {type(message).__name__}"
                self._job.send(link, Fault(FaultCode.BAD_REQUEST, text, None))
            else:
                receiver(link, node, message, now_s)

    def _join(self, link: int, join: Join, now_s: float) -> None:
        running = self._job.phase is Phase.RUNNING
        if self._told_the_end(link, join):
            return
        roster = self._job.roster
        newest = roster.last_incarnation
        if join.incarnation_hint == 0 and link not in roster.by_link:
            refusal = self._cannot_replace(join) if running else None
            if refusal is not None:
                self._refuse(link, refusal)
                return
            self._make_room(join, now_s)
            if self._over() or (running and self._waits(join, now_s)):
                return
        try:
            info = roster.admit(link, join, now_s, running=running)
        except StateError as error:
            self._refuse(link, str(error))
            return
        if info is not None:
            self._job.grace.pop(info.node, None)
            self._job.welcome(info)
            if running and info.incarnation > newest:
                self._job.replaced(info, now_s)
        if not running and roster.complete and not roster.missing():
            self._job.complete(now_s)

    def _make_room(self, join: Join, now_s: float) -> None:
        """A new process that comes for a rank whose link is down shows that its holder is dead."""
        holder = self._job.roster.holder_without_link(join)
        if holder is None:
            return
        if self._job.phase is Phase.FORMING:
            self._job.roster.remove(holder)
            self._job.grace.pop(holder, None)
        else:
            self._job.died(holder, "its link broke, and another process came in its place", now_s)

    def _waits(self, join: Join, now_s: float) -> bool:
        """Whether a replacement has come before its predecessor's death is known.

        A process whose machine vanished seems to live for a while. The new one asks again and
        again; when the holder of the rank turns out to live, it is refused after all.
        """
        if join.rank is None or join.role is not Role.WORKER:
            return False
        node = NodeId(join.role, join.rank)
        seat = self._job.roster.seats.get(node)
        lives = seat is not None and seat.link is not None
        if not lives or self._job.config.death_policy is DeathPolicy.ABORT:
            self._knocks.pop(node, None)
            return False
        config = self._job.config
        first_s = self._knocks.setdefault(node, now_s)
        if now_s >= first_s + config.heartbeat_timeout_s + config.heartbeat_interval_s:
            return False
        if first_s == now_s:
            text = f"a new process came for {node}, which seems to live; it waits for a while"
            self._job.actions.append(Log("warning", text))
        return True

    def _over(self) -> bool:
        return self._job.phase is Phase.ENDED

    def _told_the_end(self, link: int, join: Join) -> bool:
        """Answer those who come back although the job is over, or over for them."""
        done = self._job.roster.left.get(NodeId(join.role, join.rank or 0))
        if done is not None and done.incarnation == join.incarnation_hint:
            self._job.send(link, LeaveAck())
        elif self._job.phase is not Phase.ENDING:
            return False
        elif join.role is Role.SERVER and join.incarnation_hint:
            self._job.roster.admit(link, join, self._job.ending_s, running=True)
            self._job.send(link, Shutdown())
        else:
            self._refuse(link, "the job is over")
        return True

    def _cannot_replace(self, join: Join) -> str | None:
        """Why a new process may not enter a job that runs; its own lost link is no new process."""
        if join.role is Role.WORKER and self._job.config.death_policy is not DeathPolicy.ABORT:
            return None
        if join.rank is not None and NodeId(join.role, join.rank) in self._job.roster.seats:
            return None
        return f"the job runs and takes no new {join.role}"

    def _refuse(self, link: int, reason: str) -> None:
        self._job.send(link, Refused(reason))
        self._job.actions.append(Log("warning", f"refused a node: {reason}"))

    def _heartbeat(self, link: int, node: NodeId, message: Heartbeat, now_s: float) -> None:
        self._job.send(link, HeartbeatAck(message.sent_s, self._job.view))
        if node not in self._job.roster.seats:
            return
        if self._job.phase is Phase.ENDING:
            self._job.send(link, Shutdown())
        elif (
            message.view < self._job.view
            and now_s > self._job.view_s + self._job.config.heartbeat_interval_s
        ):
            if message.view == 0:
                self._job.send(link, self._job.start_message(replacement=self._job.view > 1))
            self._job.send(link, self._job.view_message(()))

    def _barrier(self, link: int, node: NodeId, message: Barrier, now_s: float) -> None:
        if node.role is not Role.WORKER or node not in self._job.roster.seats:
            text = f"{node} takes no part in barriers"
            self._job.send(link, Fault(FaultCode.WRONG_STATE, text, None))
            return
        done = self._job.barriers.done(message.name, message.number)
        if done is not None:
            self._job.send(link, BarrierDone(message.name, done))
            return
        self._job.barriers.arrive(message.name, message.number, node.rank, now_s)
        self._job.open_barriers()

    def _declare(self, link: int, node: NodeId, message: Declare, now_s: float) -> None:
        if self._job.keys is None:
            text = "keys can be declared when the job has started"
            self._job.send(link, Fault(FaultCode.WRONG_STATE, text, message.request))
            return
        try:
            placements = self._job.keys.declare(message.store, message.keys, node)
        except ConfigError as error:
            self._job.send(link, Fault(FaultCode.BAD_REQUEST, str(error), message.request))
        else:
            self._job.send(link, Declared(message.request, placements))

    def _probed(self, link: int, node: NodeId, message: Probed, now_s: float) -> None:
        self._job.probed(node, message, now_s)

    def _leave(self, link: int, node: NodeId, message: Leave, now_s: float) -> None:
        seat = self._job.roster.seats.get(node)
        if seat is not None and message.reason:
            self._job.send(link, LeaveAck())
            self._job.died(node, message.reason, now_s)
            return
        self._job.send(link, LeaveAck())
        if seat is not None and node.role is Role.SERVER and self._job.phase is Phase.ENDING:
            self._job.roster.remove(node)
            self._job.end_if_gone()
        if seat is None or node.role is not Role.WORKER:
            return
        self._job.done(node, now_s)

    # Sending, reporting.

    def _report(self, now_s: float) -> dict[str, object]:
        roster = self._job.roster
        return {
            "node": str(SCHEDULER),
            "phase": str(self._job.phase),
            "view": self._job.view,
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
            "barriers": self._job.barriers.report(roster.awaited(), now_s),
            "peers": [[link, str(node)] for link, node in roster.by_link.items()],
            "speeds": self._job.report_of_links(),
            "num_keys": 0 if self._job.keys is None else len(self._job.keys),
            "keys": [] if self._job.keys is None else self._job.keys.report(_REPORTED_KEYS),
        }
