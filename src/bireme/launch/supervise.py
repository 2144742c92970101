"""What a launcher does when its processes end, and when it is told to stop. Pure.

``Supervisor.handle(event, now_s)`` takes what happened and returns what to do; the launcher's
shell does it. Virtual time and real time are the same to it.
"""

import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from bireme.launch.exits import Exit
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import NodeId, Role

__all__ = (
    "Action",
    "Event",
    "Exited",
    "Finish",
    "Interrupted",
    "Limits",
    "Report",
    "Restart",
    "Say",
    "Send",
    "Silent",
    "Supervisor",
    "Tick",
)


@dataclass(frozen=True, slots=True)
class Exited:
    """A process ended. ``follows`` another's end when it says so itself."""

    node: NodeId
    exit: Exit
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """The job goes on without a process that it no longer hears of, but that may still be there."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The launcher got this signal, or an agent did on its host."""

    signum: int
    by_host: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by."""


Event = Exited | Silent | Interrupted | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Send a signal to the process groups of these nodes."""

    nodes: tuple[NodeId, ...]
    signum: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Start this node's process again."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the user that this node failed, how, and what it said last."""

    node: NodeId
    exit: Exit


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Every process has ended; so does the launcher."""

    exit_code: int


Action = Send | Restart | Report | Say | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a launcher waits, in seconds."""

    settle_s: float = 2.0
    """After a failure, for the others to notice it and to end by themselves."""
    culprit_s: float = 5.0
    """After a process ended because of another, for that other one to end."""
    interrupt_s: float = 10.0
    """After Ctrl-C was passed on, until SIGTERM."""
    grace_s: float = 5.0
    """After SIGTERM, until SIGKILL."""
    kill_s: float = 15.0
    """After SIGKILL, until what has not been heard of is given up: its host does not answer."""
    silent_s: float = 5.0
    """After the job has given up a process, for it to hear of that and end by itself."""
    drain_s: float = 30.0
    """After the last worker has ended well, for servers and scheduler to leave."""


_LAST = Role.SCHEDULER


class _Phase(StrEnum):
    RUNNING = "running"
    SETTLING = "settling"
    INTERRUPTED = "interrupted"
    TERMINATING = "terminating"
    KILLING = "killing"
    FINISHED = "finished"


@dataclass(slots=True)
class Supervisor:
    """Watches over the processes of one job.

    Args:
        nodes: Every node; all of them have been started.
        policy: What the death of a worker means.
        max_restarts: How often each worker may be started again under ``wait``.
        limits: How long to wait for what.

    Guarantees:
        ``Finish`` comes once, when no process is left that can be heard of, and within the sum of
        the limits after a failure or an interruption.

    Example:
        >>> from bireme.types import worker
        >>> job = Supervisor([worker(0)])
        >>> job.handle(Exited(worker(0), Exit(0)), now_s=1.0)
        [Finish(exit_code=0)]
    """

    nodes: Iterable[NodeId]
    policy: DeathPolicy = DeathPolicy.ABORT
    max_restarts: int = 3
    limits: Limits = field(default_factory=Limits)
    alive: set[NodeId] = field(init=False)
    _phase: _Phase = field(init=False, default=_Phase.RUNNING)
    _deadline_s: float | None = field(init=False, default=None)
    _exit_code: int = field(init=False, default=0)
    _failures: list[Exited] = field(init=False, default_factory=list)
    _restarts: dict[NodeId, int] = field(init=False, default_factory=dict)
    _restarted_s: dict[NodeId, float] = field(init=False, default_factory=dict)
    _num_good: int = field(init=False, default=0)
    _silent: dict[NodeId, tuple[float, bool]] = field(init=False, default_factory=dict)
    """Until when what the job has given up may still be there, and whether it was killed."""

    def __post_init__(self) -> None:
        self.alive = set(self.nodes)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take what happened at ``now_s`` and return what to do about it, in order."""
        actions: list[Action] = []
        match event:
            case Exited():
                self._exited(event, now_s, actions)
            case Silent():
                self._given_up(event.node, now_s)
            case Interrupted():
                self._interrupted(event, now_s, actions)
            case Tick():
                pass
        self._advance(now_s, actions)
        return actions

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due, or ``None``."""
        limits_s = [limit_s for limit_s, _ in self._silent.values()] if self._is_running else []
        if self._deadline_s is not None:
            limits_s.append(self._deadline_s)
        return min(limits_s, default=None)

    @property
    def _is_running(self) -> bool:
        return self._phase is _Phase.RUNNING

    def _exited(self, event: Exited, now_s: float, actions: list[Action]) -> None:
        if event.node not in self.alive:
            # It was not heard of for so long that it counts as ended.
            return
        self.alive.discard(event.node)
        given_up = self._silent.pop(event.node, None) is not None
        if self._is_running:
            if not event.exit.failed:
                self._num_good += event.node.role is Role.WORKER
            elif not self._survives(event, given_up, now_s, actions):
                self._failures.append(event)
                wait_s = self.limits.culprit_s if event.follows else self.limits.settle_s
                self._enter(_Phase.SETTLING, now_s + wait_s)
            self._drain(now_s)
        elif self._phase is _Phase.SETTLING and event.exit.failed:
            self._failures.append(event)
            if not event.follows and self._deadline_s is not None:
                self._deadline_s = min(self._deadline_s, now_s + self.limits.settle_s)

    def _survives(self, event: Exited, given_up: bool, now_s: float, actions: list[Action]) -> bool:
        """Whether the job goes on without this process, or with a new one in its place."""
        if event.node.role is not Role.WORKER or (event.follows and not given_up):
            return False
        if self.policy is DeathPolicy.WAIT:
            return self._restarted(event, now_s, actions)
        if self.policy is DeathPolicy.CONTINUE:
            if not self._workers() and not self._num_good:
                return False
            actions += [Report(event.node, event.exit), Say("the job goes on without it")]
            return True
        return False

    def _restarted(self, event: Exited, now_s: float, actions: list[Action]) -> bool:
        count = self._restarts.get(event.node, 0)
        if count >= self.max_restarts:
            actions.append(Say(f"{event.node} has been restarted {count} times; that is enough"))
            return False
        self._restarts[event.node] = count + 1
        self._restarted_s[event.node] = now_s
        self.alive.add(event.node)
        actions += [
            Report(event.node, event.exit),
            Say(f"restarting {event.node} ({count + 1} of {self.max_restarts})"),
            Restart(event.node),
        ]
        return True

    def _given_up(self, node: NodeId, now_s: float) -> None:
        """Note that the job has given up a process; it may mean one that has been replaced."""
        started_s = self._restarted_s.get(node, float("-inf"))
        if node in self.alive and now_s >= started_s + self.limits.silent_s:
            self._silent.setdefault(node, (now_s + self.limits.silent_s, False))

    def _end_silent(self, now_s: float, actions: list[Action]) -> None:
        """Kill what the job has given up: nobody else waits for it, and it may never end."""
        for node, (limit_s, is_killed) in list(self._silent.items()):
            if now_s < limit_s or not self._is_running:
                continue
            if is_killed:
                lost = Exit(255, f"was not heard of {self.limits.kill_s:g} s after SIGKILL")
                self._exited(Exited(node, lost), now_s, actions)
                continue
            self._silent[node] = now_s + self.limits.kill_s, True
            actions.append(Say(f"killing {node}: the job has given it up, and it is still there"))
            actions.append(Send((node,), signal.SIGKILL))

    def _drain(self, now_s: float) -> None:
        """Once the last worker is done, give the others a limit too."""
        if self._is_running and not self._workers() and self._deadline_s is None:
            self._deadline_s = now_s + self.limits.drain_s

    def _interrupted(self, event: Interrupted, now_s: float, actions: list[Action]) -> None:
        if self._is_running:
            self._end(event.signum, now_s, actions)
        elif self._phase is _Phase.SETTLING:
            self._interrupted_after_a_failure(event, now_s, actions)
        elif self._phase is _Phase.INTERRUPTED or event.signum == signal.SIGINT:
            actions.append(Say("ending every process at once"))
            self._kill(now_s, actions)
        # A cluster's SIGTERM comes by each of its machines: only the first one begins the grace.

    def _interrupted_after_a_failure(
        self, event: Interrupted, now_s: float, actions: list[Action]
    ) -> None:
        """Tell a job that its cluster takes away, with processes told first, from a failure."""
        first = [each.exit for each in self._failures if not each.follows]
        known = [each for each in first if not each.is_unknown]
        if event.signum != signal.SIGTERM or any(each.code != 128 + event.signum for each in known):
            self._conclude(actions)
            self._terminate(now_s, actions)
        elif not event.by_host or (known and known == first):
            self._end(event.signum, now_s, actions)
        # Else mpirun may just be ending the other agents because it has lost one. If it was a
        # request after all, the launcher has the signal too, before the failure has settled.

    def _end(self, signum: int, now_s: float, actions: list[Action]) -> None:
        self._exit_code = 128 + signum
        is_person = signum == signal.SIGINT
        last = "once more" if is_person else "Ctrl-C"
        name = signal.Signals(signum).name
        actions.append(Say(f"{name}: ending the job; {last} ends it at once"))
        if self.alive:
            actions.append(Send(self._alive(), signum))
        if is_person:
            self._enter(_Phase.INTERRUPTED, now_s + self.limits.interrupt_s)
        else:
            self._enter(_Phase.TERMINATING, now_s + self.limits.grace_s)

    def _advance(self, now_s: float, actions: list[Action]) -> None:
        """Move on when a limit has passed, and finish when nothing is left."""
        self._end_silent(now_s, actions)
        passed = self._deadline_s is not None and now_s >= self._deadline_s
        late = passed and bool(self.alive)
        if self._phase is _Phase.SETTLING and (late or not self.alive):
            self._conclude(actions)
            self._terminate(now_s, actions)
        elif late and self._is_running:
            names = ", ".join(map(str, self._alive()))
            actions.append(
                Say(f"all workers have ended, but {names} did not within {self.limits.drain_s:g} s")
            )
            self._terminate(now_s, actions)
        elif late and self._phase is _Phase.INTERRUPTED:
            self._terminate(now_s, actions)
        elif late and self._phase is _Phase.TERMINATING:
            names = ", ".join(map(str, self._alive()))
            actions.append(Say(f"killing {names}: still there {self.limits.grace_s:g} s later"))
            self._kill(now_s, actions)
        elif late and self._phase is _Phase.KILLING:
            names = ", ".join(map(str, self._alive()))
            actions.append(Say(f"giving up {names}: not heard of {self.limits.kill_s:g} s later"))
            self.alive.clear()
        if not self.alive and self._phase is not _Phase.FINISHED:
            self._enter(_Phase.FINISHED, None)
            actions.append(Finish(self._exit_code))

    def _conclude(self, actions: list[Action]) -> None:
        """Name the failure that caused the others, and take its exit code."""
        # The scheduler hardly ever fails first: it says what happened to others.
        culprit = min(self._failures, key=lambda each: (each.follows, each.node.role is _LAST))
        self._exit_code = culprit.exit.code
        actions.append(Report(culprit.node, culprit.exit))

    def _terminate(self, now_s: float, actions: list[Action]) -> None:
        if self.alive:
            actions.append(Send(self._alive(), signal.SIGTERM))
        self._enter(_Phase.TERMINATING, now_s + self.limits.grace_s)

    def _kill(self, now_s: float, actions: list[Action]) -> None:
        actions.append(Send(self._alive(), signal.SIGKILL))
        self._enter(_Phase.KILLING, now_s + self.limits.kill_s)

    def _enter(self, phase: _Phase, deadline_s: float | None) -> None:
        self._phase, self._deadline_s = phase, deadline_s

    def _alive(self) -> tuple[NodeId, ...]:
        return tuple(sorted(self.alive))

    def _workers(self) -> list[NodeId]:
        return [node for node in self.alive if node.role is Role.WORKER]
