"""The processes of one host: started, heard, told to end.

Used on the launcher's machine and by agents alike: processes live and die in one way.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from bireme.launch import guard
from bireme.launch.child import Child
from bireme.launch.exits import Exit
from bireme.types.nodes import NodeId

__all__ = ("Crew", "guarded")

OnLines = Callable[[NodeId, list[str], bool], None]

_MARKS = ("BIREME_JOB", "BIREME_ROLE", "BIREME_RANK")
"""What a process and all that it starts have in common, and with no other process."""


class Crew:
    """Running processes by their nodes.

    Args:
        selector: Waits for their output and ends. The data of what is registered is a function
            without arguments, to be called when its descriptor is ready, or ``None``.
        guard_fd: Where processes are made known to the guard.
        on_lines: Called with a node, lines that it has printed, and whether by standard error.

    Guarantees:
        After ``close`` no process is left, nor what one has started: what has made a session of its
        own is known by the variables that say whose it is.
    """

    def __init__(self, selector: selectors.BaseSelector, guard_fd: int, on_lines: OnLines) -> None:
        self._selector = selector
        self._guard_fd = guard_fd
        self._on_lines = on_lines
        self._children: dict[NodeId, Child] = {}
        self._marks: dict[NodeId, guard.Mark] = {}
        self._is_heard = True

    @property
    def nodes(self) -> list[NodeId]:
        """Whose processes run."""
        return list(self._children)

    @property
    def pids(self) -> set[int]:
        """Their numbers."""
        return {child.pid for child in self._children.values()}

    def start(
        self,
        node: NodeId,
        command: tuple[str, ...],
        env: Mapping[str, str],
        *,
        workdir: str = "",
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        """Start a process.

        Raises:
            ConfigError: The command cannot be run.
        """
        self._mark(node, env)
        child = Child(
            command,
            env,
            partial(self._on_lines, node),
            register=partial(_register, self._guard_fd),
            workdir=workdir,
            pass_fds=pass_fds,
        )
        self._children[node] = child
        if child.exit_fd is not None:
            self._selector.register(child.exit_fd, selectors.EVENT_READ)
        if self._is_heard:
            self._hear(child)

    def hear(self, wanted: bool) -> None:
        """Stop taking output, so that processes wait before they print more; or go on."""
        if wanted is self._is_heard:
            return
        self._is_heard = wanted
        for child in self._children.values():
            if wanted:
                self._hear(child)
            else:
                self._unhear(*child.fds)

    def signal(self, node: NodeId, signum: int) -> None:
        """Send a signal to a process and to what it has started; nothing if it has ended."""
        child = self._children.get(node)
        if child is not None:
            child.signal(signum)

    def reap(self) -> list[tuple[NodeId, Exit]]:
        """Return what has ended since the last call; of those at one time, the killed come first.

        Everything that they have printed has been passed on before.
        """
        ended = []
        for node, child in list(self._children.items()):
            exit_ = child.poll()
            if exit_ is not None:
                self._forget(node)
                ended.append((node, exit_))
        self._end_strays(node for node, _ in ended)
        return sorted(ended, key=lambda each: each[1].status >= 0)

    def close(self) -> None:
        """Kill what still runs, and give everything back."""
        for node, child in list(self._children.items()):
            child.signal(signal.SIGKILL)
            while child.poll() is None:
                time.sleep(0.001)
            self._forget(node)
        self._end_strays(self._marks)

    def _mark(self, node: NodeId, env: Mapping[str, str]) -> None:
        """Remember how to know what the process will have started, and let the guard know."""
        if all(name in env for name in _MARKS):
            mark = frozenset(os.fsencode(f"{name}={env[name]}") for name in _MARKS)
            self._marks[node] = mark
            with contextlib.suppress(BrokenPipeError):
                os.write(self._guard_fd, guard.mark_line(mark))

    def _end_strays(self, nodes: Iterable[NodeId]) -> None:
        guard.end_marked([self._marks[node] for node in nodes if node in self._marks])

    def _hear(self, child: Child) -> None:
        for fd in child.fds:
            self._selector.register(fd, selectors.EVENT_READ, partial(self._read, child, fd))

    def _unhear(self, *fds: int | None) -> None:
        for fd in fds:
            if fd is not None and fd in self._selector.get_map():
                self._selector.unregister(fd)

    def _read(self, child: Child, fd: int) -> None:
        if not child.read(fd):
            self._unhear(fd)

    def _forget(self, node: NodeId) -> None:
        child = self._children.pop(node)
        self._unhear(*child.fds, child.exit_fd)
        child.close()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._guard_fd, b"-%d\n" % child.pid)


@contextlib.contextmanager
def guarded() -> Iterator[int]:
    """Start the guard, which ends processes if this one is killed, and yield what it listens to."""
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
