"""One process of a job on this machine: started in a group of its own, heard, and ended with it."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping

from bireme.errors import ConfigError
from bireme.launch.exits import Exit
from bireme.launch.lines import LineBuffer

__all__ = ("Child", "OnLines")

_READ_BYTES = 64 << 10
_MOST_AFTER_THE_END = 64

OnLines = Callable[[list[str], bool], None]
"""Takes lines, and whether they came by standard error."""


class Child:
    """A running process.

    Args:
        command: What to run.
        env: Its whole environment.
        workdir: Where it starts; empty for here.
        on_lines: Called with what it prints.
        register: Called in the child before it runs the command; takes no locks.
        pass_fds: Descriptors that the process inherits.

    Raises:
        ConfigError: The command cannot be run.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        env: Mapping[str, str],
        on_lines: OnLines,
        *,
        register: Callable[[], object],
        workdir: str = "",
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        self._on_lines = on_lines
        self._process = _start(command, env, workdir, register, pass_fds)
        self.pid = self._process.pid
        self._buffers: dict[int, LineBuffer] = {}
        self._stdout, self._stderr = _fd(self._process.stdout), _fd(self._process.stderr)
        for fd in self.fds:
            os.set_blocking(fd, False)
            self._buffers[fd] = LineBuffer()
        self.exit_fd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None

    @property
    def fds(self) -> tuple[int, int]:
        """The descriptors to wait for output on: standard output and standard error."""
        return self._stdout, self._stderr

    def read(self, fd: int) -> bool:
        """Take what the process has written to ``fd``, and return whether there can be more."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        buffer = self._buffers[fd]
        self._show(fd, buffer.feed(data) if data else buffer.finish())
        return bool(data)

    def poll(self) -> Exit | None:
        """Return how the process ended, or ``None`` while it runs.

        What the process itself has started and left behind is ended with it.
        """
        if hasattr(os, "waitid"):
            # The zombie keeps its number until it is reaped: the group is surely still its own.
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self.pid, flags) is None:
                return None
        elif self._process.poll() is None:
            return None
        self.signal(signal.SIGKILL)
        return Exit(self._process.wait())

    def signal(self, signum: int) -> None:
        """Send a signal to the process and to whatever it has started; what is stopped goes on."""
        try:
            os.killpg(self.pid, signum)
            # A stopped process would not get the signal before somebody lets it go on.
            os.killpg(self.pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            return

    def close(self) -> None:
        """Take the rest of the output, and give everything back."""
        for fd in self.fds:
            # A process that left the group may hold the other end open for ever.
            for _ in range(_MOST_AFTER_THE_END):
                if not self._has_output(fd):
                    break
            self._show(fd, self._buffers[fd].finish())
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self.exit_fd is not None:
            os.close(self.exit_fd)

    def _has_output(self, fd: int) -> bool:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        self._show(fd, self._buffers[fd].feed(data))
        return bool(data)

    def _show(self, fd: int, lines: list[str]) -> None:
        if lines:
            self._on_lines(lines, fd == self._stderr)


def _start(
    command: tuple[str, ...],
    env: Mapping[str, str],
    workdir: str,
    register: Callable[[], object],
    pass_fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=env,
            cwd=workdir or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=register,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"cannot run {command[0]!r}: {error}") from error


def _fd(pipe: object) -> int:
    assert pipe is not None
    return int(pipe.fileno())  # type: ignore[attr-defined]
