"""What a server and a worker have in common: joining, views, heartbeats, the end of the job.

Owned by :class:`~bireme.core.server.ServerCore` and :class:`~bireme.core.worker.WorkerCore`, which
pass it what concerns the scheduler and look at ``view`` and ``ended`` afterwards.
"""

from typing import TYPE_CHECKING

import msgspec

from bireme.core.actions import Action, Connect, EndJob, Log, Pace, Send
from bireme.core.events import Event
from bireme.core.prober import Prober
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import SCHEDULER, NodeId, Role
from bireme.wire.messages import (
    Abort,
    Heartbeat,
    HeartbeatAck,
    JobConfig,
    Join,
    Joined,
    Message,
    NodeInfo,
    Probe,
    Refused,
    Shutdown,
    Start,
    ViewChange,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("RECONNECT_S", "RETRY_S", "Identity", "Member")

RETRY_S = 0.2
"""Pause between two attempts to reach a node that does not answer."""

RECONNECT_S = 1.0
"""How long a lost link to the scheduler may take to come back before the job is given up."""

_BYTES_PER_MBIT = 1e6 / 8

_JOIN_RESEND_S = 0.1
"""Often, because a node whose link broke has only a moment to come back."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a process is, as it tells the scheduler."""

    role: Role
    rank: int | None
    """From the launcher; ``None`` lets the scheduler choose."""
    host: str
    pid: int
    num_workers: int
    num_servers: int
    addresses: tuple[str, ...] = ()
    """Where it listens, best first (servers)."""
    software: str = ""
    """Version of the package."""
    bandwidth: float = 1.0
    """Relative share of the bytes that a server takes."""
    link_mbps: float = 0.0
    """Speed of this machine's link, each way; 0 when nobody said."""
    start_timeout_s: float = 60.0
    """How long to try to reach the scheduler and to wait for the others."""


class Member:
    """Keeps one node's membership in its job.

    Args:
        identity: Who the process is.

    Guarantees:
        It reaches the scheduler or ends the job within ``start_timeout_s``; a silent or dead
        scheduler ends it within the heartbeat's limit. The end is told by ``ended``; nothing is
        sent after it.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.node: NodeId | None = None
        self.incarnation = 0
        self.view = 0
        """Newest view known; 0 before the job is complete."""
        self.started: Start | None = None
        self.nodes: dict[NodeId, NodeInfo] = {}
        """Who is alive in ``view``."""
        self.lost: frozenset[int] = frozenset()
        """Ranks of workers that died and are not replaced."""
        self.left: frozenset[int] = frozenset()
        """Ranks of workers that are done."""
        self.link: int | None = None
        """The link to the scheduler."""
        self.leaving = False
        """The node is about to leave; that the scheduler is gone is no failure then."""
        self.ended: EndJob | None = None
        self.prober = Prober()
        """Whom events go to that it says concern it."""
        self._start_by_s = 0.0
        """Limit for the job to start. Once taken in, a node leaves it to the scheduler, which knows
        who is missing and whose limit has begun before, and keeps one of its own behind that."""
        self._unreachable = ""
        self._heard_s = 0.0
        self._reconnect_by_s: float | None = None
        self._retry_at_s: float | None = None
        self._beat_at_s: float | None = None
        self._beat_interval_s = 1.0
        self._silence_s = identity.start_timeout_s
        self._receivers: dict[type[Message], Callable[..., list[Action]]] = {
            Joined: self._joined,
            Refused: self._refused,
            Start: self._start,
            ViewChange: self._view_change,
            HeartbeatAck: self._heartbeat_ack,
            Abort: self._abort,
            Shutdown: self._shutdown,
        }

    @property
    def config(self) -> JobConfig:
        """What the scheduler settled; known once the job has started."""
        assert self.started is not None
        return self.started.config

    @property
    def vacant_ranks_are_awaited(self) -> bool:
        """Whether a dead worker's rank waits for a replacement."""
        return self.config.death_policy is DeathPolicy.WAIT

    def awaited(self) -> list[int]:
        """Return the ranks of workers that still take part, ascending."""
        gone = self.left if self.vacant_ranks_are_awaited else self.left | self.lost
        return [rank for rank in range(self.config.num_workers) if rank not in gone]

    def leave(self) -> None:
        """The scheduler knows that this node is done: the job is over for it."""
        self._end(0, "it has left")

    def start(self, now_s: float) -> list[Action]:
        """Begin to look for the scheduler."""
        self._heard_s = now_s
        self._start_by_s = now_s + self.identity.start_timeout_s
        return [Connect(SCHEDULER, ())]

    def linked(self, link: int, now_s: float) -> list[Action]:
        """Take the new link to the scheduler: join by it, or join again."""
        self.link = link
        self._heard_s = now_s
        self._retry_at_s = None
        self._beat_at_s = now_s + _JOIN_RESEND_S
        return [self._join()]

    def connect_failed(self, reason: str, now_s: float) -> list[Action]:
        """Try again later, or give up."""
        if self.leaving:
            return self._end(0, "the job is over")
        self._unreachable = f": {reason}"
        limit_s = self._start_by_s if self.node is None else self._reconnect_by_s
        if limit_s is not None and now_s >= limit_s:
            return self._end(1, f"{self._scheduler()} cannot be reached: {reason}")
        self._retry_at_s = now_s + RETRY_S
        return []

    def lost_link(self, reason: str, now_s: float) -> list[Action]:
        """The link to the scheduler is gone: try to get it back for a moment."""
        self.link = None
        self._beat_at_s = None
        if self.node is not None and self._reconnect_by_s is None:
            self._reconnect_by_s = now_s + RECONNECT_S
        return [Log("warning", f"lost the link to the scheduler: {reason}"), Connect(SCHEDULER, ())]

    def received(self, message: Message, now_s: float) -> list[Action] | None:
        """Take a message of the scheduler; ``None`` when it is not about membership."""
        self._heard_s = now_s
        if type(message) is Probe:
            return self._answered(self.prober.begin(message, now_s))
        receiver = self._receivers.get(type(message))
        return None if receiver is None else receiver(message)

    def probing(self, event: Event, now_s: float) -> list[Action]:
        """Take an event that concerns ``prober``."""
        return self._answered(self.prober.handle(event, now_s))

    def _answered(self, actions: list[Action]) -> list[Action]:
        outcome, self.prober.outcome = self.prober.outcome, None
        if outcome is not None and self.link is not None:
            actions.append(Send(self.link, outcome))
        return actions

    def tick(self, now_s: float) -> list[Action]:
        """Send what is due and look at the limits."""
        if self.ended is not None:
            return []
        if self._reconnect_by_s is not None and now_s >= self._reconnect_by_s:
            if self.leaving:
                return self._end(0, "the job is over")
            return self._end(1, f"{self._scheduler()} is gone, and did not come back")
        if self.started is None and now_s >= self._start_by_s:
            return self._end(1, self._start_limit())
        # A link that is down has a limit of its own, and its silence says nothing.
        if self._hears and now_s >= self._heard_s + self._silence_s:
            return self._end(
                1, f"{self._scheduler()} has been silent for {now_s - self._heard_s:.1f} s"
            )
        actions: list[Action] = []
        if self.prober.due_s is not None:
            actions = self._answered(self.prober.tick(now_s))
        if self._retry_at_s is not None and now_s >= self._retry_at_s:
            self._retry_at_s = None
            actions.append(Connect(SCHEDULER, ()))
        if self._beat_at_s is not None and now_s >= self._beat_at_s and self.link is not None:
            joining = self.node is None or self._reconnect_by_s is not None
            self._beat_at_s = now_s + (_JOIN_RESEND_S if joining else self._beat_interval_s)
            beat = Send(self.link, Heartbeat(now_s, self.view))
            actions.append(self._join() if joining else beat)
        return actions

    def next_deadline_s(self) -> float | None:
        """Return when ``tick`` has something to do."""
        if self.ended is not None:
            return None
        due_s = self._beat_at_s
        if self.started is None:
            due_s = _earlier(due_s, self._start_by_s)
            due_s = _earlier(due_s, self.prober.due_s)
        elif self.link is not None:
            due_s = _earlier(due_s, self._heard_s + self._silence_s)
        if self._retry_at_s is not None or self._reconnect_by_s is not None:
            due_s = _earlier(_earlier(due_s, self._retry_at_s), self._reconnect_by_s)
        return due_s

    @property
    def _hears(self) -> bool:
        return self.started is not None and self.link is not None

    def _join(self) -> Send:
        identity = self.identity
        assert self.link is not None
        return Send(
            self.link,
            Join(
                role=identity.role,
                rank=identity.rank if self.node is None else self.node.rank,
                host=identity.host,
                pid=identity.pid,
                addresses=identity.addresses,
                num_workers=identity.num_workers,
                num_servers=identity.num_servers,
                software=identity.software,
                incarnation_hint=self.incarnation,
                bandwidth=identity.bandwidth,
                link_mbps=identity.link_mbps,
            ),
        )

    def _joined(self, message: Joined) -> list[Action]:
        self._reconnect_by_s = None
        if self.node is not None:
            return []
        self.node = message.node
        self.incarnation = message.incarnation
        self._beat_interval_s = message.heartbeat_interval_s
        self._silence_s = message.heartbeat_timeout_s
        self._start_by_s = self._heard_s + self.identity.start_timeout_s
        return [Log("info", f"joined as {message.node}, incarnation {message.incarnation}")]

    def _refused(self, message: Refused) -> list[Action]:
        return self._end(1, f"the scheduler refuses this {self.identity.role}: {message.reason}")

    def _start(self, message: Start) -> list[Action]:
        if self.started is None and self.node is not None:
            self.started = message
            self._set_view(message.view, message.nodes)
            return self.prober.close() + self._paced(self.nodes[self.node])
        return []

    def _paced(self, info: NodeInfo) -> list[Action]:
        """Say how fast this machine's link is, beside which others, and who goes first."""
        mbps = info.link_mbps
        if not mbps:
            return []
        fastest = max(each.link_mbps for each in self.nodes.values())
        speeds = mbps * _BYTES_PER_MBIT, fastest * _BYTES_PER_MBIT
        pace = Pace(*speeds, gives_way=self._gives_way(info))
        if self.identity.link_mbps:
            return [pace]
        return [
            Log("info", f"the link of {info.host} carries {mbps:.0f} Mbit/s, as measured"),
            pace,
        ]

    def _gives_way(self, info: NodeInfo) -> bool:
        """Return whether a node's data is to let a worker's pass, which goes by the same link.

        A push holds up every worker's answers, an answer only its own. But where answers are most
        of what leaves a machine, little of them in the queue would leave the link idle: that is
        so unless each worker has a server beside it, which takes a share of the pushes.
        """
        hosts = {
            role: {each.host for each in self.nodes.values() if each.node.role is role}
            for role in (Role.SERVER, Role.WORKER)
        }
        workers, servers = hosts[Role.WORKER], hosts[Role.SERVER]
        return info.node.role is Role.SERVER and info.host in workers and workers <= servers

    def _view_change(self, message: ViewChange) -> list[Action]:
        if self.started is None or message.view < self.view:
            return []
        self.lost = frozenset(
            each.node.rank for each in message.lost if each.node.role is Role.WORKER
        )
        self.left = frozenset(node.rank for node in message.left)
        self._set_view(message.view, message.nodes)
        return [Log("info", f"view {message.view}: lost {list(message.lost)}")]

    def _set_view(self, view: int, nodes: tuple[NodeInfo, ...]) -> None:
        self.view = view
        self.nodes = {info.node: info for info in nodes}

    def _heartbeat_ack(self, message: HeartbeatAck) -> list[Action]:
        return []

    def _abort(self, message: Abort) -> list[Action]:
        who = "the job" if message.culprit is None else f"{message.culprit} on {message.host}"
        return self._end(message.exit_code, f"{who}: {message.reason}")

    def _shutdown(self, message: Shutdown) -> list[Action]:
        return self._end(0, "all workers have left")

    def _end(self, exit_code: int, text: str) -> list[Action]:
        if self.ended is None:
            self.ended = EndJob(exit_code, text)
        return []

    def _scheduler(self) -> str:
        if self.started is None:
            return "the scheduler"
        info = self.nodes.get(SCHEDULER)
        return "the scheduler" if info is None else f"the scheduler on {info.host}"

    def _start_limit(self) -> str:
        limit = f"the job did not start within {self.identity.start_timeout_s:g} s"
        if self.link is None:
            return f"{limit}: the scheduler cannot be reached{self._unreachable}"
        if self.node is None:
            return f"{limit}: the scheduler did not take this {self.identity.role} in"
        return f"{limit}: the scheduler still waits for other nodes"


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or (other is not None and other < one):
        return other
    return one
