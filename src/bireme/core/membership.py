"""A job's membership as its scheduler keeps it: who takes part, and what a change of that means.

Owned by :class:`~bireme.core.scheduler.SchedulerCore`, which tells it what the messages say.
"""

from enum import StrEnum

import msgspec

from bireme.core.actions import Action, Close, EndJob, Log, Send
from bireme.core.barriers import Barriers
from bireme.core.keys import KeyRegistry
from bireme.core.neighbours import relayed_hosts
from bireme.core.roster import Roster, Seat
from bireme.core.sites import Way, server_weights, ways, with_frames
from bireme.core.survey import Survey, is_worthwhile
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import NodeId, Role
from bireme.wire.messages import (
    Abort,
    BarrierDone,
    JobConfig,
    Joined,
    Lost,
    Message,
    NodeInfo,
    Probed,
    Shutdown,
    Start,
    ViewChange,
)

__all__ = ("LINK_GRACE_S", "Membership", "Phase")

LINK_GRACE_S = 0.5
"""How long a broken link may take to come back before its node counts as dead."""

_LEAVE_GATHER_S = 0.05
"""Departures within this time are told in one view, so that a thousand do not make a million."""


class Phase(StrEnum):
    """Where a job stands."""

    FORMING = "forming"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class Membership:
    """Who takes part in a job, in which phase it is, and what is to be sent because of it.

    Args:
        config: What the launcher settled.
        roster: The seats.
        host: Name of the scheduler's host, for messages.
    """

    def __init__(self, config: JobConfig, roster: Roster, host: str) -> None:
        self.config = config
        self.host = host
        self.roster = roster
        self.barriers = Barriers()
        self.keys: KeyRegistry | None = None
        self.phase = Phase.FORMING
        self.view = 0
        self.view_s = 0.0
        self.actions: list[Action] = []
        """What is to be done; the owner takes them."""
        self.began_s = 0.0
        self.sweep_s = 0.0
        self.grace: dict[NodeId, tuple[float, str]] = {}
        """Nodes whose link broke: until when they may come back, and why it broke."""
        self.vacant_since_s: dict[NodeId, float] = {}
        self.gather_s: float | None = None
        self.ending_s = 0.0
        self.survey: Survey | None = None
        """While links are measured, between the last one's coming and the beginning."""
        self.last_probe = 0
        self.speeds: dict[str, float] = {}
        """Of links that were measured, in Mbit/s, by machine."""
        self.ways: tuple[Way, ...] = ()

    def start(self, now_s: float) -> None:
        """Begin: the limit for forming the job runs from here."""
        self.began_s = now_s
        self.sweep_s = now_s + self.config.heartbeat_interval_s

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due, on the clock of ``now_s``."""
        if self.phase is Phase.ENDED:
            return None
        due = [self.sweep_s, *(limit_s for limit_s, _ in self.grace.values())]
        if self.phase is Phase.FORMING:
            due.append(self.began_s + self.config.start_timeout_s)
            if self.survey is not None:
                due.append(self.survey.due_s)
        if self.gather_s is not None:
            due.append(self.gather_s)
        if self.phase is Phase.ENDING:
            due.append(self.ending_s + self.config.exit_timeout_s)
        due += [since + self.config.replace_timeout_s for since in self.vacant_since_s.values()]
        return min(due)

    def tick(self, now_s: float) -> None:
        """Look at every limit."""
        config = self.config
        if self.survey is not None:
            self._go_on(now_s)
        if self.phase is Phase.FORMING and now_s >= self.began_s + config.start_timeout_s:
            missing = ", ".join(str(node) for node in self.roster.missing())
            text = f"the job did not form within {config.start_timeout_s:g} s: {missing} missing"
            self.abort(None, text, now_s)
        elif self.phase is Phase.ENDING and now_s >= self.ending_s + config.exit_timeout_s:
            names = ", ".join(str(node) for node in sorted(self.roster.seats))
            self.finish(0, f"all workers have left; {names} did not end in time")
        else:
            self._look_for_dead(now_s)
            self._look_for_vacant(now_s)
            if self.gather_s is not None and now_s >= self.gather_s:
                self.new_view(now_s)
                if self.phase is Phase.RUNNING:
                    self.broadcast(self.view_message(()))

    def complete(self, now_s: float) -> None:
        """Everyone has come: give the last ranks, measure links if that is of use, and begin."""
        for info in self.roster.rank_the_rest(now_s):
            self.welcome(info)
        infos = self.roster.infos()
        if not is_worthwhile(infos, self.config):
            self.form(now_s)
        elif self.survey is None or self.survey.infos != infos:
            self.survey = Survey(infos, self.last_probe, now_s)
            self._go_on(now_s)

    def probed(self, node: NodeId, message: Probed, now_s: float) -> None:
        """Take what a node has found out about links."""
        if self.survey is not None:
            self.survey.take(node, message, now_s)
            self._go_on(now_s)

    def _go_on(self, now_s: float) -> None:
        """Ask for what is to be measured next, or begin."""
        survey = self.survey
        assert survey is not None
        self.last_probe = survey.number
        if survey.infos != self.roster.infos():
            # Somebody died, and whoever comes in its place lets it begin anew.
            self.survey = None
            return
        survey.tick(now_s)
        self.last_probe = survey.number
        messages, survey.messages = survey.messages, []
        for node, message in messages:
            self.send_to(node, message)
        if survey.done or now_s >= self.began_s + self.config.start_timeout_s:
            self.survey = None
            self.speeds = survey.speeds()
            self.actions += survey.notes
            self.form(now_s)

    def form(self, now_s: float) -> None:
        """Settle who holds how much, and begin."""
        for seat in self.roster.seats.values():
            self._tell_speed(seat)
        infos = self.roster.infos()
        self.config = with_frames(self.config, infos)
        weights = server_weights(infos, relayed_hosts(infos, self.config))
        self.keys = KeyRegistry(weights, self.config.slice_bytes)
        self.ways = ways(infos, self.speeds, weights)
        self.actions += [Log("info", str(way)) for way in self.ways if len(self.ways) > 1]
        self.phase = Phase.RUNNING
        self.view, self.view_s = 1, now_s
        self.broadcast(self.start_message(replacement=False))
        self.actions.append(Log("info", "the job is complete"))

    def replaced(self, info: NodeInfo, now_s: float) -> None:
        """Tell everyone of the process that has taken a dead one's rank."""
        self._tell_speed(self.roster.seats[info.node])
        info = self.roster.seats[info.node].info
        self.vacant_since_s.pop(info.node, None)
        self.new_view(now_s)
        self.send_to(info.node, self.start_message(replacement=True))
        self.broadcast(self.view_message((info,)))
        self.actions.append(Log("info", f"{info.node} is replaced by a process on {info.host}"))

    def _tell_speed(self, seat: Seat) -> None:
        """Note the speed that was measured where nobody stated one."""
        speed = self.speeds.get(seat.info.host)
        if speed is not None and not seat.info.link_mbps:
            seat.info = msgspec.structs.replace(seat.info, link_mbps=speed)

    def report_of_links(self) -> list[object]:
        """Return the machines' links as plain data: name, Mbit/s, whence known, share of bytes."""
        return [[way.host, way.mbps, way.source, way.share] for way in self.ways]

    def start_message(self, *, replacement: bool) -> Start:
        """Return what a member needs to know at first."""
        return Start(self.view, self.roster.infos(), self.config, replacement=replacement)

    def view_message(self, joined: tuple[NodeInfo, ...]) -> ViewChange:
        """Return who takes part now."""
        roster = self.roster
        return ViewChange(
            self.view, roster.infos(), tuple(roster.lost.values()), joined, tuple(roster.left)
        )

    def new_view(self, now_s: float) -> None:
        """Count a change of the membership."""
        self.view += 1
        self.view_s = now_s
        self.gather_s = None

    def done(self, node: NodeId, now_s: float) -> None:
        """A worker leaves in good order."""
        self.roster.left[node] = self.roster.remove(node).info
        self.open_barriers()
        if self.phase is Phase.RUNNING:
            self.gather_s = now_s + _LEAVE_GATHER_S if self.gather_s is None else self.gather_s
            self.end_if_done(now_s)

    def link_lost(self, link: int, reason: str, now_s: float) -> None:
        """Give a node whose link broke a moment to come back."""
        seat = self.roster.unbind(link)
        if seat is None:
            return
        self.grace[seat.info.node] = (now_s + LINK_GRACE_S, reason)

    def died(self, node: NodeId, reason: str, now_s: float) -> None:
        """Do what the job's policy says about the death of a node."""
        seat = self.roster.remove(node)
        self.grace.pop(node, None)
        info = seat.info
        policy = self.config.death_policy
        if self.phase is Phase.ENDING:
            self._bury(seat, reason)
            self.end_if_gone()
        elif self.phase is Phase.FORMING and policy is not DeathPolicy.ABORT:
            self._bury(seat, reason)
        elif node.role is Role.SERVER or policy is DeathPolicy.ABORT:
            self.abort(info, reason, now_s)
        elif policy is DeathPolicy.CONTINUE and not any(self.roster.workers()):
            self.abort(info, f"{reason}; it was the last worker", now_s)
        else:
            self.roster.lost[node] = Lost(node, info.incarnation, info.host, reason)
            if policy is DeathPolicy.WAIT:
                self.vacant_since_s[node] = now_s
            self._bury(seat, reason)
            self.new_view(now_s)
            self.broadcast(self.view_message(()))
            self.open_barriers()

    def _bury(self, seat: Seat, reason: str) -> None:
        """Have no more to do with a node that is dead, and say so: launchers look for this line."""
        info = seat.info
        self.actions.append(Log("error", f"{info.node} on {info.host} is dead: {reason}"))
        if seat.link is not None:
            self.roster.by_link.pop(seat.link, None)
            self.actions.append(Close(seat.link))

    def abort(self, culprit: NodeInfo | None, reason: str, now_s: float) -> None:
        """End the job; everyone hears who or what is to blame."""
        node = None if culprit is None else culprit.node
        host = self.host if culprit is None else culprit.host
        self.broadcast(Abort(node, host, reason, 1))
        self.finish(1, reason if node is None else f"{node} on {host}: {reason}")

    def end_if_done(self, now_s: float) -> None:
        """Begin to end the job once no worker is left or awaited."""
        if any(self.roster.workers()) or self.vacant_since_s:
            return
        self.phase = Phase.ENDING
        self.ending_s = now_s
        for seat in self.roster.servers():
            self.send_to(seat.info.node, Shutdown())
        self.end_if_gone()

    def end_if_gone(self) -> None:
        """End the job once nobody is left."""
        if not self.roster.seats:
            self.finish(0, "all workers have left")

    def finish(self, exit_code: int, text: str) -> None:
        """The job is over."""
        self.phase = Phase.ENDED
        self.actions.append(EndJob(exit_code, text))

    def open_barriers(self) -> None:
        """Let everyone go on at whose barrier nobody is missing any more."""
        for name, number, ranks in self.barriers.complete(self.roster.awaited()):
            done = BarrierDone(name, number)
            for rank in ranks:
                self.send_to(NodeId(Role.WORKER, rank), done)

    def _look_for_dead(self, now_s: float) -> None:
        """Find those that are silent, and those whose link did not come back."""
        dead = [(node, why) for node, (limit_s, why) in self.grace.items() if now_s >= limit_s]
        if now_s >= self.sweep_s:
            self.sweep_s = now_s + self.config.heartbeat_interval_s
            limit_s = now_s - self.config.heartbeat_timeout_s
            dead += [
                (node, f"silent for {now_s - seat.heard_s:.1f} s")
                for node, seat in self.roster.seats.items()
                if seat.heard_s <= limit_s and node not in self.grace
            ]
        for node, why in dead:
            if self.phase is not Phase.ENDED and node in self.roster.seats:
                self.died(node, why, now_s)

    def _look_for_vacant(self, now_s: float) -> None:
        """Give up when a replacement does not come."""
        limit_s = self.config.replace_timeout_s
        for node, since_s in list(self.vacant_since_s.items()):
            if self.phase is Phase.RUNNING and now_s >= since_s + limit_s:
                lost = self.roster.lost[node]
                info = NodeInfo(node, lost.incarnation, lost.host, 0, ())
                text = f"{lost.reason}; no replacement came within {limit_s:g} s"
                self.abort(info, text, now_s)

    def send(self, link: int, message: Message) -> None:
        """Send a message by a link."""
        self.actions.append(Send(link, message))

    def send_to(self, node: NodeId, message: Message) -> None:
        """Send a message to a member that has a link."""
        seat = self.roster.seats.get(node)
        if seat is not None and seat.link is not None:
            self.actions.append(Send(seat.link, message))

    def broadcast(self, message: Message) -> None:
        """Send a message to all members that have a link."""
        for seat in self.roster.seats.values():
            if seat.link is not None:
                self.actions.append(Send(seat.link, message))

    def welcome(self, info: NodeInfo) -> None:
        """Tell a node that it has joined."""
        config = self.config
        self.send_to(
            info.node,
            Joined(
                info.node,
                info.incarnation,
                config.heartbeat_interval_s,
                config.heartbeat_timeout_s,
            ),
        )
