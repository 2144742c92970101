"""A host of a job as its launcher sees it, and the one that is this very machine.

``LocalSite`` does a host's part: on the launcher's machine for the launcher, elsewhere inside of an
agent, which only carries its words (:mod:`bireme.launch.agent`, :mod:`bireme.launch.remote`).
"""

import contextlib
import os
import platform
import selectors
import shutil
import socket
from pathlib import Path
from typing import Protocol

from bireme.errors import ConfigError
from bireme.launch.crew import Crew, guarded
from bireme.launch.environment import Meeting, told
from bireme.launch.exits import Exit
from bireme.launch.hosts import is_loopback
from bireme.launch.ports import listening, reserved
from bireme.launch.talk import Begin, Ready, unpacked
from bireme.launch.versions import versions
from bireme.types.nodes import SCHEDULER, NodeId
from bireme.version import __version__

__all__ = ("Listener", "LocalSite", "Site")

_LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"


class Listener(Protocol):
    """Who is told what happens at a site. Called from ``open``, ``go`` and while a site is read."""

    def ready(self, site: "Site", ready: Ready) -> None:
        """Its processes can start."""

    def lines(self, node: NodeId, lines: list[str], is_error: bool) -> None:
        """A process has printed."""

    def ended(self, node: NodeId, exit_: Exit) -> None:
        """A process has ended; all its lines have come before."""

    def lost(self, site: "Site", reason: str) -> None:
        """Nothing more will come from this site, and nothing of its processes is known."""

    def asked(self, signum: int) -> None:
        """Somebody there asks the job to end by this signal."""


class Site(Protocol):
    """One host of a job. Nothing blocks; descriptors are in the launcher's selector."""

    name: str
    """What the user calls it."""

    @property
    def how_far(self) -> str:
        """What it is waiting for, in a few words, while it is not ready."""

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left to wait for, after ``leave``."""

    def bring(self, archive: Path) -> None:
        """Have files unpacked in the job's ``sync_dir`` before anything else; before ``open``."""

    def open(self) -> None:
        """Begin to get ready; ``ready`` or ``lost`` follows."""

    def go(self, meeting: Meeting) -> None:
        """Start every process of the host."""

    def signal(self, nodes: tuple[NodeId, ...], signum: int) -> None:
        """Send a signal to processes, and to what they have started."""

    def start_again(self, node: NodeId) -> None:
        """Start the process of a node that has ended once more."""

    def step(self, now_s: float) -> None:
        """Do what is due; called after every wait."""

    def leave(self) -> None:
        """Begin to go away: what is left of the job here ends."""

    def close(self) -> None:
        """Kill what is left, and give everything back."""


class LocalSite:
    """The host that this process runs on.

    Args:
        begin: Its part of the job.
        selector: Where its processes' descriptors go.
        listener: Told what happens.
        reached_at: The address at which a launcher elsewhere has reached this host, if it has.

    Guarantees:
        When this process is killed, a guard ends every process that it has started.
    """

    def __init__(
        self,
        begin: Begin,
        selector: selectors.BaseSelector,
        listener: Listener,
        *,
        reached_at: str = "",
    ) -> None:
        self.name = begin.host
        self.grace_s = begin.grace_s
        self.crew: Crew | None = None
        self._begin = begin
        self._starts = {start.node: start for start in begin.starts}
        self._base = unpacked(begin.base)
        self._selector = selector
        self._listener = listener
        self._reached_at = reached_at
        self._meeting = Meeting()
        self._stack = contextlib.ExitStack()

    def bring(self, archive: Path) -> None:
        """Do nothing: the files are here."""

    def open(self) -> None:
        """Check what can be checked, and take the ports that others are told of.

        Raises:
            ConfigError: The command or the folder is not here, or a port cannot be had.
        """
        self._check()
        address = self._address()
        begin = self._begin
        scheduler_port = store_port = engine_port = 0
        if begin.has_scheduler:
            # The port is taken here and handed over open: nobody else can get it in between, and
            # nodes that are early wait in its queue instead of being refused.
            self._listener_socket = self._stack.enter_context(self._listening(address))
            scheduler_port = self._listener_socket.getsockname()[1]
        if begin.has_store:
            store_port = self._stack.enter_context(reserved())
            engine_port = self._stack.enter_context(reserved())
        guard_fd = self._stack.enter_context(guarded())
        self.crew = Crew(self._selector, guard_fd, self._listener.lines)
        self._listener.ready(
            self,
            Ready(
                version=__version__,
                python=platform.python_version(),
                hostname=socket.gethostname(),
                address=address,
                scheduler_port=scheduler_port,
                store_port=store_port,
                engine_port=engine_port,
                packages=versions(),
            ),
        )

    def go(self, meeting: Meeting) -> None:
        """Start every process of the host.

        Raises:
            ConfigError: One cannot be started.
        """
        self._meeting = meeting
        for node in self._starts:
            if node == SCHEDULER:
                self._start(node, self._listener_socket.fileno())
                # From here on the port is the scheduler's alone, and closes when it dies.
                self._listener_socket.close()
            else:
                self._start(node, None)

    def signal(self, nodes: tuple[NodeId, ...], signum: int) -> None:
        """Send a signal to processes, and to what they have started."""
        for node in nodes:
            if self.crew is not None:
                self.crew.signal(node, signum)

    def start_again(self, node: NodeId) -> None:
        """Start the process of a node that has ended once more."""
        self._start(node, None)

    def step(self, _now_s: float) -> None:
        """Take the ends of processes."""
        for node, exit_ in self.crew.reap() if self.crew is not None else ():
            self._listener.ended(node, exit_)

    @property
    def how_far(self) -> str:
        """What it is waiting for: it gets ready at once."""
        return "about to get ready"

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left to wait for: ``close`` kills at once."""
        return True

    def leave(self) -> None:
        """Do nothing: ``close`` kills at once."""

    def close(self) -> None:
        """Kill what is left, and give everything back."""
        if self.crew is not None:
            self.crew.close()
        self._stack.close()

    def _start(self, node: NodeId, listen_fd: int | None) -> None:
        assert self.crew is not None
        start = self._starts[node]
        env = told(
            self._base,
            unpacked(start.env),
            node,
            self._meeting,
            threads=self._begin.threads or self._threads(),
            listen_fd=listen_fd,
        )
        self.crew.start(
            node,
            tuple(map(os.fsdecode, start.command)),
            env,
            workdir=self._begin.workdir,
            pass_fds=() if listen_fd is None else (listen_fd,),
        )

    def _threads(self) -> int:
        """Return how many cores a process has here, when all but the scheduler share them."""
        busy = sum(node != SCHEDULER for node in self._starts)
        return max(1, _num_cores() // max(1, busy))

    def _check(self) -> None:
        workdir = self._begin.workdir
        if workdir and not Path(workdir).is_dir():
            raise ConfigError(
                f"there is no folder {workdir}; name another one by --workdir, or have it copied "
                "by --sync-dir"
            )
        for start in self._begin.starts[:1]:
            path = {**self._base, **unpacked(start.env)}.get("PATH")
            _check_command(os.fsdecode(start.command[0]), path, workdir)

    def _address(self) -> str:
        """Return the address by which other hosts reach this one; empty if it cannot know."""
        if not self._begin.peer:
            return _LOOPBACK
        reached_at = self._reached_at
        # Where the launcher has reached this host, others do: names may be known to ssh only. But
        # behind a tunnel that is loopback, which others have their own of.
        if reached_at and not is_loopback(reached_at):
            return reached_at
        if self._begin.address and not reached_at:
            return self._begin.address
        return _outward_address(self._begin.peer) or reached_at

    def _listening(self, address: str) -> socket.socket:
        try:
            if address:
                return listening(address)
            raise ConfigError(
                f"{socket.gethostname()} does not know by which address it is reached"
            )
        except ConfigError:
            # Behind a translation of addresses the one that others use is not the host's own.
            if self._begin.is_open or not self._begin.peer:
                raise
            return listening(_EVERYWHERE)


def _outward_address(peer: str) -> str:
    """Return the address from which packets to another host would leave; or nothing."""
    try:
        family, *_, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _check_command(command: str, path: str | None, workdir: str) -> None:
    where = command
    if os.sep in command and workdir and not Path(command).is_absolute():
        where = str(Path(workdir) / command)
    if shutil.which(where, path=path) is not None:
        return
    hint = f"; write: python {command}" if command.endswith(".py") else ""
    raise ConfigError(f"cannot run {command!r}: no such command{hint}")


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
