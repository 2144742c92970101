"""The launcher for this machine: every node is a process of its own here."""

import argparse
import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar

from bireme.errors import ConfigError
from bireme.launch import guard
from bireme.launch.child import Child
from bireme.launch.console import Printer
from bireme.launch.exits import abort_of, names_an_abort
from bireme.launch.job import JobSpec, Meeting, ProcessPlan, plan
from bireme.launch.jobs import JobNote, noted, notes_folder
from bireme.launch.ports import listening, reserved
from bireme.launch.seats import Store
from bireme.launch.signals import SignalInbox
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
    Supervisor,
    Tick,
)
from bireme.settings import NodeSettings, Security
from bireme.settings.variables import read_fields
from bireme.types.nodes import NodeId, Role

__all__ = ("LocalLauncher",)

_LOOPBACK = "127.0.0.1"
_POLL_S = 0.1
_IDLE_S = 1.0


class LocalLauncher:
    """Runs a job on this machine.

    Args:
        limits: How long to wait for what when the job ends.

    Guarantees:
        Nothing but the launcher's children knows the job's secret. When the launcher itself is
        killed, its guard ends every process that it had started.
    """

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "this machine"

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add nothing: this launcher needs no options."""

    @classmethod
    def from_options(cls, _options: argparse.Namespace) -> "LocalLauncher":
        """Return a launcher."""
        return cls()

    def run(self, spec: JobSpec, printer: Printer, env: Mapping[str, str]) -> int:
        """Run the job to its end and return its exit code."""
        _check_command(spec.command[0], {**env, **spec.env}.get("PATH"))
        with contextlib.ExitStack() as stack:
            # The port is taken here and handed over open: nobody else can get it in between, and
            # nodes that are early wait in its queue instead of being refused.
            listener = stack.enter_context(listening(_LOOPBACK))
            port, listen_fd = listener.getsockname()[1], listener.fileno()
            ports = [stack.enter_context(reserved()) for _ in range(2)]
            store = Store(host=_LOOPBACK, port=ports[0], engine_port=ports[1])
            meeting = Meeting(host=_LOOPBACK, port=port, store=store, listen_fd=listen_fd)
            plans = plan(spec, meeting, env, num_cores=_num_cores())
            note = _note(spec, plans[0])
            stack.enter_context(_findable(note, notes_folder(env), printer))
            guard_fd = stack.enter_context(_guarded())
            run = stack.enter_context(_Run(spec, plans, printer, guard_fd, self._limits))
            run.start(listen_fd)
            # From here on the port is the scheduler's alone, and closes when it dies.
            listener.close()
            return run.until_the_end()


class _Run:
    """The processes of one job, from their start to their end."""

    def __init__(
        self,
        spec: JobSpec,
        plans: list[ProcessPlan],
        printer: Printer,
        guard_fd: int,
        limits: Limits,
    ) -> None:
        self._spec = spec
        self._plans = {each.node: each for each in plans}
        self._printer = printer
        self._guard_fd = guard_fd
        self._children: dict[NodeId, Child] = {}
        self._tails: dict[NodeId, list[str]] = {}
        self._selector = selectors.DefaultSelector()
        self._inbox = SignalInbox()
        self._start_s = time.monotonic()
        self._is_heard = True
        self._exit_code: int | None = None
        self._supervisor = Supervisor(
            self._plans, spec.settings.death_policy, spec.max_restarts, limits
        )

    def __enter__(self) -> "_Run":
        self._inbox.__enter__()
        self._selector.register(self._inbox.fd, selectors.EVENT_READ)
        return self

    def __exit__(self, *error: object) -> None:
        for node, child in list(self._children.items()):
            child.signal(signal.SIGKILL)
            while child.poll() is None:
                time.sleep(0.001)
            self._forget(node)
        self._selector.close()
        self._inbox.__exit__(None, None, None)

    def start(self, listen_fd: int) -> None:
        """Start every process; the scheduler inherits the listening socket."""
        for node in self._plans:
            is_scheduler = node.role is Role.SCHEDULER
            self._start(node, (listen_fd,) if is_scheduler else ())

    def until_the_end(self) -> int:
        """Print and watch until no process is left, and return the job's exit code."""
        while self._exit_code is None:
            self._read(self._wait_s())
            for signum in self._inbox.take():
                self._handle(Interrupted(signum))
            for event in self._reap():
                self._handle(event)
            self._handle(Tick())
        return self._exit_code

    def _start(self, node: NodeId, pass_fds: tuple[int, ...] = ()) -> None:
        with contextlib.ExitStack() as on_error:
            log = self._open_log(node, append=node in self._tails)
            if log is not None:
                on_error.enter_context(log)
            child = Child(
                self._plans[node],
                partial(self._print, node),
                register=partial(_register, self._guard_fd),
                pass_fds=pass_fds,
                log=log,
            )
            on_error.pop_all()
        self._children[node] = child
        for fd in (*child.fds, child.exit_fd):
            if fd is not None:
                self._selector.register(fd, selectors.EVENT_READ, (child, fd))

    def _open_log(self, node: NodeId, *, append: bool) -> BinaryIO | None:
        if self._spec.output_dir is None:
            return None
        folder = Path(self._spec.output_dir)
        name = "scheduler.log" if node.role is Role.SCHEDULER else f"{node.role}-{node.rank}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / name).open("ab" if append else "wb", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write to the output directory: {error}") from error

    def _wait_s(self) -> float:
        deadline_s = self._supervisor.next_deadline_s()
        longest_s = _IDLE_S if hasattr(os, "pidfd_open") else _POLL_S
        if deadline_s is None:
            return longest_s
        return min(longest_s, max(0.0, deadline_s - self._now_s()))

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def _read(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                continue
            child, fd = key.data
            if fd != child.exit_fd and not child.read(fd):
                self._selector.unregister(fd)

    def _reap(self) -> list[Exited]:
        """Return the ends of processes; of those at one time, the killed ones come first."""
        ended: list[Exited] = []
        for node, child in list(self._children.items()):
            exit_ = child.poll()
            if exit_ is not None:
                self._forget(node)
                ended.append(
                    Exited(node, exit_, follows=names_an_abort(self._tails[node], str(node)))
                )
        return sorted(ended, key=lambda event: event.exit.status >= 0)

    def _forget(self, node: NodeId) -> None:
        child = self._children.pop(node)
        for fd in (*child.fds, child.exit_fd):
            if fd is not None and fd in self._selector.get_map():
                self._selector.unregister(fd)
        child.close()
        self._tails[node] = list(child.tail)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._guard_fd, b"-%d\n" % child.pid)

    def _handle(self, event: Event) -> None:
        for action in self._supervisor.handle(event, self._now_s()):
            match action:
                case Send(nodes, signum):
                    for node in nodes:
                        self._children[node].signal(signum)
                case Restart(node):
                    self._start(node)
                case Report(node, exit_):
                    after = f"after {self._now_s():.1f} s{self._cause(node)}"
                    self._say(f"{node} {exit_} {after}{self._last(node)}")
                case Say(text):
                    self._say(text)
                case Finish(exit_code):
                    self._exit_code = exit_code

    def _cause(self, node: NodeId) -> str:
        """Name who is to blame when that one did not fail itself: it was stopped, or left."""
        cause = abort_of(self._tails.get(node, []), str(node))
        return "" if cause is None else f", because of {cause}"

    def _last(self, node: NodeId) -> str:
        lines = self._tails.get(node, [])
        if not lines:
            return "; it had printed nothing"
        return "; its last lines:\n" + "\n".join(f"    {line}" for line in lines)

    def _print(self, node: NodeId, text: str, is_error: bool) -> None:
        """Print, until nobody reads any more: then the job is over, as with ``| head``."""
        if not self._is_heard:
            return
        try:
            self._printer.line(node, text, is_error=is_error)
        except BrokenPipeError:
            self._is_heard = False
            self._inbox.put(signal.SIGTERM)
            self._say("nobody reads the output any longer")

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._printer.say(text)


def _note(spec: JobSpec, scheduler: ProcessPlan) -> JobNote:
    node = read_fields(NodeSettings, scheduler.env)
    host, port = node.get("scheduler_host"), node.get("scheduler_port")
    return JobNote(
        job=node.get("job", ""),
        launcher_pid=os.getpid(),
        scheduler_address=f"tcp://{host}:{port}" if spec.num_servers else "",
        secret=node.get("secret", ""),
        secret_file=node.get("secret_file", ""),
        security=node.get("security", Security.AUTH),
        command=spec.command,
        num_workers=spec.num_workers,
        num_servers=spec.num_servers,
    )


@contextlib.contextmanager
def _findable(note: JobNote, folder: Path, printer: Printer) -> Iterator[None]:
    """Note the job for ``bireme doctor``; the job does not depend on it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(noted(note, folder))
        except ConfigError as error:
            printer.say(f"bireme doctor will not find this job: {error}")
        yield


@contextlib.contextmanager
def _guarded() -> Iterator[int]:
    """Start the guard and yield the descriptor that it listens to."""
    command = (sys.executable, "-I", "-S", guard.__file__)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdin is not None
        yield process.stdin.fileno()


def _register(guard_fd: int) -> None:
    """Make a process known to the guard, from inside and before it can do anything."""
    with contextlib.suppress(BrokenPipeError):
        os.write(guard_fd, b"+%d\n" % os.getpid())


def _check_command(command: str, path: str | None) -> None:
    if shutil.which(command, path=path) is not None:
        return
    hint = f"; write: python {command}" if command.endswith(".py") else ""
    raise ConfigError(f"cannot run {command!r}: no such command{hint}")


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
