"""A host elsewhere: an agent that a remote shell has started, and the pipes to it.

The launcher's end. What is said is in :mod:`bireme.launch.talk`; the other end is
:mod:`bireme.launch.agent`.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from bireme.launch.conversation import READ_BYTES, Conversation
from bireme.launch.environment import Meeting
from bireme.launch.exits import Exit
from bireme.launch.lines import LineBuffer
from bireme.launch.site import Listener
from bireme.launch.talk import Begin, Bye, Go, Send, StartAgain
from bireme.types.nodes import NodeId

__all__ = ("RemoteSite",)

_LAST_WORDS_S = 1.0
_MOMENT_S = 0.01

Explain = Callable[[int | None, list[str]], str]


class RemoteSite:
    """A host that an agent works on.

    Args:
        begin: Its part of the job.
        command: What starts the agent there, with its standard input and output as they are.
        env: The remote shell's environment.
        preface: What the command wants to read before the first message.
        selector: Where descriptors go.
        listener: Told what happens.
        explain: Turns the command's exit code and the last lines of its standard error, when there
            was no agent, into a reason and what to do.

    Guarantees:
        Nothing of the job is in the command line. The host is lost when its agent has not been
        heard for a minute.
    """

    def __init__(
        self,
        begin: Begin,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str],
        preface: bytes,
        selector: selectors.BaseSelector,
        listener: Listener,
        explain: Explain,
    ) -> None:
        self.name = begin.host
        self._begin = begin
        self._command = command
        self._env = env
        self._preface = preface
        self._selector = selector
        self._listener = listener
        self._explain = explain
        self._talk = Conversation(self, selector, listener, self._lose)
        self._process: subprocess.Popen[bytes] | None = None
        self._said = LineBuffer()
        self._errors: deque[str] = deque(maxlen=20)
        self._is_lost = False
        self._silent_s: float | None = None

    def bring(self, archive: Path) -> None:
        """Have files unpacked in the job's ``sync_dir`` before anything else."""
        self._talk.bring(archive)

    def open(self) -> None:
        """Start the remote shell; its agent answers later."""
        try:
            self._process = subprocess.Popen(
                self._command,
                env=dict(self._env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._lose(f"cannot run {self._command[0]!r}: {error}")
            return
        stdin, stdout, stderr = self._pipes()
        for fd, act in ((stdout, self._read), (stderr, self._read_errors)):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, act)
        self._talk.begin(stdin, self._begin, self._preface)

    def go(self, meeting: Meeting) -> None:
        """Have every process of the host started."""
        self._talk.put(Go(meeting))

    def signal(self, nodes: tuple[NodeId, ...], signum: int) -> None:
        """Have a signal sent to processes, and to what they have started."""
        self._talk.put(Send(nodes, signum))

    def start_again(self, node: NodeId) -> None:
        """Have the process of a node that has ended started once more."""
        if self._is_lost:
            self._listener.ended(node, Exit(255, f"cannot be started again: {self.name} is lost"))
        else:
            self._talk.put(StartAgain(node))

    def step(self, now_s: float) -> None:
        """Notice an agent that is silent; time in which this process did not run is not counted."""
        if self._silent_s is not None and not self._is_lost and self._is_over(now_s):
            self._lose(self._reason())
        if not self._is_lost:
            self._talk.step(now_s)

    @property
    def how_far(self) -> str:
        """What it is waiting for."""
        if self._process is None:
            return "not started yet"
        if self._talk.has_begun:
            return "its agent has started and is not ready"
        last = f"; last said: {self._errors[-1]}" if self._errors else ""
        return f"no answer by {self._command[0]}{last}"

    @property
    def is_gone(self) -> bool:
        """Whether the remote shell has ended, after ``leave``."""
        return self._process is None or self._process.poll() is not None

    def leave(self) -> None:
        """Have the agent leave, which ends what is left on its host."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        if not self._talk.has_begun:
            # Nothing has been started by a shell that has not answered.
            _kill(process)
            return
        self._talk.put(Bye())

    def close(self) -> None:
        """End the remote shell, and give everything back."""
        process, self._process = self._process, None
        if process is None:
            return
        self._unregister(process)
        if process.poll() is None:
            _kill(process)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        _, stdout, _ = self._pipes()
        try:
            data = os.read(stdout, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(stdout)
            self._silent_s = time.monotonic()
            return
        self._talk.take(data)

    def _read_errors(self) -> None:
        *_, stderr = self._pipes()
        try:
            data = os.read(stderr, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(stderr)
        self._errors.extend(self._said.feed(data) if data else self._said.finish())

    def _is_over(self, now_s: float) -> bool:
        """Whether a remote shell that has closed its output has said why, or had the time to."""
        assert self._process is not None
        assert self._silent_s is not None
        _, _, stderr = self._pipes()
        if stderr not in self._selector.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_MOMENT_S)
                return True
        return now_s - self._silent_s > _LAST_WORDS_S

    def _reason(self) -> str:
        """Say why there is no agent, or no longer one."""
        assert self._process is not None
        code = self._process.poll()
        if self._talk.has_begun:
            last = f": {self._errors[-1]}" if self._errors else ""
            return f"the connection to it has ended{last}"
        noise = self._talk.noise.decode("utf-8", "replace").split("\n")
        return self._explain(code, [*filter(None, noise), *self._errors])

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            if self._process is not None:
                self._unregister(self._process)
            self._listener.lost(self, reason)

    def _unregister(self, process: subprocess.Popen[bytes]) -> None:
        self._talk.close()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None and pipe.fileno() in self._selector.get_map():
                self._selector.unregister(pipe.fileno())

    def _pipes(self) -> tuple[int, int, int]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
