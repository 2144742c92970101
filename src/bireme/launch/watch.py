"""Runs a planned job to its end: hosts get ready, processes start, are watched, and end together.

One loop for one machine and for a thousand. What to do when something ends is decided by
:class:`~bireme.launch.supervise.Supervisor`; what a host is, is behind
:class:`~bireme.launch.site.Site`. Backends call ``run_plan``.
"""

import contextlib
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from bireme.errors import JobError
from bireme.launch.console import Printer
from bireme.launch.environment import Meeting
from bireme.launch.exits import Exit, names_an_abort, silent_in
from bireme.launch.jobs import findable, note_of
from bireme.launch.logs import Logs, logs_of
from bireme.launch.parts import begin_for
from bireme.launch.plan import HostPlan, Plan
from bireme.launch.room import fds_for, make_room
from bireme.launch.signals import SignalInbox
from bireme.launch.site import Listener, LocalSite, Site
from bireme.launch.supervise import (
    Event,
    Exited,
    Finish,
    Interrupted,
    Limits,
    Report,
    Restart,
    Say,
    Send,
    Silent,
    Supervisor,
    Tick,
)
from bireme.launch.syncing import archive_of
from bireme.launch.tails import Tails
from bireme.launch.talk import Begin, Ready
from bireme.launch.turn import turn
from bireme.launch.versions import differences
from bireme.types.nodes import NodeId, Role

__all__ = ("Elsewhere", "run_plan")

_POLL_S = 0.1
_IDLE_S = 1.0
_LEAVE_S = 5.0
_MOST_AT_ONCE = 64
"""Hosts that get ready at one time: remote shells cost processes here and logins there."""

Elsewhere = Callable[[HostPlan, Begin, selectors.BaseSelector, Listener], Site]
"""Makes the site of a host that is not this machine."""


def run_plan(
    plan: Plan,
    printer: Printer,
    elsewhere: Elsewhere | None = None,
    limits: Limits | None = None,
) -> int:
    """Run a job to its end and return its exit code.

    Args:
        plan: What to start where.
        printer: Where output goes.
        elsewhere: How to reach other hosts; not needed where there are none.
        limits: How long to wait for what when the job ends; the job's grace period by default.

    Raises:
        ConfigError: Something cannot be run here; nothing is left running.
        JobError: A host cannot do its part; nothing is left running.
    """
    make_room(fds_for(plan))
    with contextlib.ExitStack() as stack:
        logs = logs_of(plan, printer.say)
        if logs is not None:
            stack.enter_context(logs)
        limits = limits or Limits(grace_s=plan.spec.grace_s)
        watch = stack.enter_context(_Watch(plan, printer, elsewhere, logs, limits))
        if plan.spec.sync_dir and not plan.is_local:
            watch.bring(stack.enter_context(archive_of(Path(plan.spec.workdir))))
        stopped = watch.get_ready()
        if stopped is not None:
            return 128 + stopped
        meeting = watch.meeting()
        stack.enter_context(findable(note_of(plan, meeting), plan.spec.inherited, printer.say))
        watch.go(meeting)
        return watch.until_the_end()


class _Watch:
    """The hosts of one job, from the first word to the last process."""

    def __init__(
        self,
        plan: Plan,
        printer: Printer,
        elsewhere: Elsewhere | None,
        logs: Logs | None,
        limits: Limits,
    ) -> None:
        self._plan = plan
        self._printer = printer
        self._logs = logs
        self._selector = selectors.DefaultSelector()
        self._inbox = SignalInbox()
        self._start_s = time.monotonic()
        self._site_of: dict[NodeId, Site] = {}
        self._hosts: dict[Site, HostPlan] = {}
        for host in plan.hosts:
            site = self._made(host, elsewhere)
            self._hosts[site] = host
            self._site_of |= dict.fromkeys(host.nodes, site)
        self._ready: dict[Site, Ready] = {}
        self._lost: dict[Site, str] = {}
        self._asked: list[int] = []
        self._ended: dict[NodeId, Exited] = {}
        self._silent: list[str] = []
        self._named = {str(node): node for node in self._site_of}
        self._tails = Tails()
        self._is_heard = True
        spec = plan.spec
        self._supervisor = Supervisor(
            self._site_of, spec.settings.death_policy, spec.max_restarts, limits
        )
        self._exit_code: int | None = None

    def __enter__(self) -> "_Watch":
        self._inbox.__enter__()
        self._selector.register(self._inbox.fd, selectors.EVENT_READ)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for site in self._hosts:
            site.leave()
        limit_s = time.monotonic() + _LEAVE_S
        while not all(site.is_gone for site in self._hosts) and time.monotonic() < limit_s:
            self._wait(0.02)
        for site in self._hosts:
            site.close()
        self._selector.close()
        self._inbox.__exit__(None, None, None)

    def bring(self, archive: Path) -> None:
        """Have files copied to every other host first."""
        for site in self._hosts:
            site.bring(archive)

    def get_ready(self) -> int | None:
        """Have every host get ready, many at a time; return a signal that came meanwhile.

        Raises:
            ConfigError: This machine cannot do its part.
            JobError: Another cannot, or did not within the job's limit.
        """
        waiting = deque(self._hosts)
        limit_s = time.monotonic() + self._plan.spec.launch_timeout_s
        num_opened = 0
        while True:
            while waiting and num_opened - len(self._ready) < _MOST_AT_ONCE and not self._lost:
                num_opened += 1
                waiting.popleft().open()
            if self._lost:
                raise JobError(_failures(self._lost))
            if len(self._ready) == len(self._hosts):
                self._tell_differences()
                return None
            left_s = limit_s - time.monotonic()
            if left_s <= 0:
                raise JobError(self._late())
            self._wait(min(_IDLE_S, left_s))
            for signum in (*self._inbox.take(), *self._asked):
                return signum

    def _tell_differences(self) -> None:
        told = {site.name: (ready.python, ready.packages) for site, ready in self._ready.items()}
        for line in differences(told):
            self._say(line)

    def meeting(self) -> Meeting:
        """Return where the nodes find each other, now that every host is ready.

        Raises:
            JobError: Nobody knows by which address one of them is reached.
        """
        found = Meeting()
        for site, host in self._hosts.items():
            ready = self._ready[site]
            if host.has_scheduler:
                found = msgspec.structs.replace(
                    found,
                    scheduler_host=self._address(site),
                    scheduler_port=ready.scheduler_port,
                )
            if host.has_store:
                found = msgspec.structs.replace(
                    found,
                    store_host=self._address(site),
                    store_port=ready.store_port,
                    engine_port=ready.engine_port,
                )
        return found

    def _address(self, site: Site) -> str:
        """Return the address of a host, by its own word or, for this machine, by another's."""
        words = [self._ready[site].address]
        if self._hosts[site].is_here:
            words += [ready.launcher for ready in self._ready.values()]
        address = next(filter(None, words), "")
        if not address:
            raise JobError(
                f"host {site.name} does not know by which address others reach it; name hosts by "
                "addresses, or it by --scheduler-host"
            )
        return address

    def go(self, meeting: Meeting) -> None:
        """Start every process."""
        for site in self._hosts:
            site.go(meeting)

    def until_the_end(self) -> int:
        """Print and watch until no process is left, and return the job's exit code."""
        while self._exit_code is None:
            self._wait(self._wait_s())
            for signum in self._inbox.take():
                self._handle(Interrupted(signum))
            # Of those that ended at one time, the killed ones come first.
            ended = sorted(self._ended.values(), key=lambda event: event.exit.status >= 0)
            self._ended = {}
            for event in ended:
                self._handle(event)
            silent, self._silent = self._silent, []
            for name in silent:
                if name in self._named:
                    self._handle(Silent(self._named[name]))
            # Whatever starts agents may tell the others when one of them is lost.
            asked, self._asked = self._asked, []
            for signum in asked:
                self._handle(Interrupted(signum, by_host=True))
            self._handle(Tick())
        return self._exit_code

    # What sites report.

    def ready(self, site: Site, ready: Ready) -> None:
        """Note that a host is ready."""
        self._ready[site] = ready

    def lines(self, node: NodeId, lines: list[str], is_error: bool) -> None:
        """Keep and print what a process has printed."""
        self._tails.add(node, lines, is_error=is_error)
        if node.role is Role.SCHEDULER:
            self._silent += silent_in(lines)
        if self._logs is not None:
            self._logs.keep(node, lines, is_error=is_error)
        if not self._is_heard:
            return
        try:
            for line in lines:
                self._printer.line(node, line, is_error=is_error)
        except BrokenPipeError:
            # Nobody reads any more: then the job is over, as with ``| head``.
            self._is_heard = False
            self._inbox.put(signal.SIGTERM)
            self._say("nobody reads the output any longer")

    def ended(self, node: NodeId, exit_: Exit) -> None:
        """Note that a process has ended."""
        follows = names_an_abort(self._tails.of(node), str(node))
        self._ended[node] = Exited(node, exit_, follows=follows)

    def lost(self, site: Site, reason: str) -> None:
        """Note that a host is lost, and its processes with it."""
        self._lost[site] = reason
        for node in self._hosts[site].nodes:
            if node in self._supervisor.alive and node not in self._ended:
                exit_ = Exit(255, f"was lost with its host: {reason}")
                self._ended[node] = Exited(node, exit_)

    def asked(self, signum: int) -> None:
        """Note that a host got this signal: the job is to end."""
        self._asked.append(signum)

    def _made(self, host: HostPlan, elsewhere: Elsewhere | None) -> Site:
        begin = begin_for(self._plan, host)
        if host.is_here or elsewhere is None:
            return LocalSite(begin, self._selector, self)
        return elsewhere(host, begin, self._selector, self)

    def _wait(self, timeout_s: float) -> None:
        turn(self._selector, timeout_s)
        now_s = time.monotonic()
        for site in self._hosts:
            site.step(now_s)

    def _wait_s(self) -> float:
        deadline_s = self._supervisor.next_deadline_s()
        longest_s = _IDLE_S if hasattr(os, "pidfd_open") else _POLL_S
        if deadline_s is None:
            return longest_s
        return min(longest_s, max(0.0, deadline_s - self._now_s()))

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def _handle(self, event: Event) -> None:
        for action in self._supervisor.handle(event, self._now_s()):
            match action:
                case Send(nodes, signum):
                    self._send(nodes, signum)
                case Restart(node):
                    self._site_of[node].start_again(node)
                case Report(node, exit_):
                    blame, last = self._tails.report(node)
                    after = f"after {self._now_s():.1f} s{blame}"
                    self._say(f"{node}{self._where(node)} {exit_} {after}{last}")
                case Say(text):
                    self._say(text)
                case Finish(exit_code):
                    self._exit_code = exit_code

    def _send(self, nodes: tuple[NodeId, ...], signum: int) -> None:
        by_site: dict[Site, list[NodeId]] = {}
        for node in nodes:
            by_site.setdefault(self._site_of[node], []).append(node)
        for site, mine in by_site.items():
            site.signal(tuple(mine), signum)

    def _where(self, node: NodeId) -> str:
        return "" if self._plan.is_local else f" on {self._site_of[node].name}"

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._printer.say(text)

    def _late(self) -> str:
        """Say which hosts are not ready at the limit, and how far they are."""
        late = [site for site in self._hosts if site not in self._ready]
        shown = "; ".join(f"{site.name}: {site.how_far}" for site in late[:8])
        more = f" and {len(late) - 8} more" if len(late) > 8 else ""
        return (
            f"{len(late)} of {len(self._hosts)} hosts are not ready after "
            f"{self._plan.spec.launch_timeout_s:g} s: {shown}{more}; raise --start-timeout if they "
            "are only slow"
        )


def _failures(lost: dict[Site, str]) -> str:
    shown = "; ".join(f"host {site.name}: {reason}" for site, reason in list(lost.items())[:4])
    return f"{shown} and {len(lost) - 4} more" if len(lost) > 4 else shown
