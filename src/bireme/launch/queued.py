"""Follows a job in a cluster's queue from here: its output, its exit code, and Ctrl-C.

Called by backends that hand a script to a queue. What they submit with says the job's number at
once; it either waits and ends with the job's exit code (``qsub -sync y``), or the cluster is asked
again and again (Slurm, whose ``sbatch --wait`` notices the end up to half a minute later).
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bireme.errors import ConfigError, JobError
from bireme.launch.asking import ask
from bireme.launch.base import Submitted
from bireme.launch.console import Printer
from bireme.launch.lines import LineBuffer
from bireme.launch.signals import SignalInbox

__all__ = ("Queue", "follow", "hand_in", "lines_of")

_POLL_S = 0.25
_PAUSE_S = 5.0
_SETTLE_S = 5.0
_READ_BYTES = 256 << 10
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How a cluster's commands are called."""

    submit: tuple[str, ...]
    """Reads the script from standard input, and prints the job's number first."""
    number_of: Callable[[str], str]
    """Takes the number out of what is printed; empty while it is not there."""
    cancel: Callable[[str], Sequence[str]]
    """Ends the job of a number."""
    env: Mapping[str, str]
    exit_code: Callable[[str], int | None] | None = None
    """Asks for the exit code of a job, ``None`` while it has none; where ``submit`` does not wait.
    """


def hand_in(queue: Queue, script: str) -> str:
    """Put a script into the queue, and return the job's number at once.

    Raises:
        JobError: The cluster refuses it.
    """
    try:
        ended = subprocess.run(
            queue.submit,
            input=script,
            env=dict(queue.env),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"cannot submit: {error}") from error
    number = queue.number_of(ended.stdout)
    if ended.returncode or not number:
        raise JobError(f"the cluster refuses the job: {_last(ended.stderr + ended.stdout)}")
    return number


def follow(
    queue: Queue, script: str, output_of: Callable[[str], Path], printer: Printer
) -> Submitted:
    """Put a script into the queue, and stay until the job has ended.

    Args:
        queue: The cluster's commands; ``submit`` waits, or there is an ``exit_code`` to ask for.
        script: What to run.
        output_of: The file that a job of some number writes to.
        printer: Where its output goes.

    Raises:
        JobError: The cluster refuses it.
    """
    try:
        process = subprocess.Popen(
            queue.submit,
            env=dict(queue.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise JobError(f"cannot submit: {error}") from error
    with process, SignalInbox() as inbox, selectors.DefaultSelector() as selector:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(script.encode())
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return _Follower(queue, process, inbox, selector, output_of, printer).until_the_end()


def lines_of(output: str, job: str) -> Iterator[str]:
    """Yield the lines of a job's output behind the name of its file.

    Args:
        output: The file; empty if the cluster does not know it.
        job: The job's number.

    Raises:
        ConfigError: There is no such file.
    """
    path = Path(output)
    if not output or not path.is_file():
        raise ConfigError(f"the cluster knows of no output of job {job}")
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from (f"{path.name}: {line.rstrip()}" for line in lines)


class _Follower:
    def __init__(
        self,
        queue: Queue,
        process: subprocess.Popen[bytes],
        inbox: SignalInbox,
        selector: selectors.BaseSelector,
        output_of: Callable[[str], Path],
        printer: Printer,
    ) -> None:
        assert process.stdout is not None
        self._queue = queue
        self._process = process
        self._inbox = inbox
        self._output_of = output_of
        self._printer = printer
        self._selector = selector
        self._stdout = process.stdout.fileno()
        os.set_blocking(self._stdout, False)
        selector.register(inbox.fd, selectors.EVENT_READ)
        selector.register(self._stdout, selectors.EVENT_READ)
        self._said = b""
        self._number = ""
        self._output: BinaryIO | None = None
        self._lines = LineBuffer()
        self._stopped = 0
        self._answers = True
        self._ask_s = 0.0
        self._pause_s = 0.5

    def until_the_end(self) -> Submitted:
        while (code := self._exit_code()) is None:
            self._selector.select(_POLL_S)
            self._step()
        self._drain()
        code = 128 + self._stopped if self._stopped else code if code >= 0 else 128 - code
        return Submitted(job=self._number, exit_code=code)

    def _exit_code(self) -> int | None:
        code = self._process.poll()
        if code is None:
            return None
        self._step()
        if not self._number:
            raise JobError(f"the cluster refuses the job: {_last(self._text)}")
        if self._queue.exit_code is None:
            return code
        now_s = time.monotonic()
        if now_s < self._ask_s:
            return None
        # The longer it has run, the less a few seconds more matter, and the cluster is asked less.
        self._pause_s = min(_PAUSE_S, self._pause_s * 1.2)
        self._ask_s = now_s + self._pause_s
        return self._asked(self._queue.exit_code)

    def _asked(self, exit_code: Callable[[str], int | None]) -> int | None:
        """Ask the cluster; that it does not answer, as while it is started anew, ends no job."""
        try:
            code = exit_code(self._number)
        except JobError as error:
            if self._answers:
                self._printer.say(f"nothing is known of job {self._number}: {error}; asking on")
            self._answers = False
            return 1 if self._stopped else None
        self._answers = True
        return code

    def _step(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._stdout, _READ_BYTES)
            self._said += data
            if not data and self._stdout in self._selector.get_map():
                self._selector.unregister(self._stdout)
        if not self._number:
            self._number = self._queue.number_of(self._text)
            if self._number:
                output = self._output_of(self._number)
                self._printer.say(f"submitted as job {self._number}; its output is in {output}")
                if self._stopped:
                    self._cancel()
        for signum in self._inbox.take():
            self._stop(signum)
        self._show()

    def _stop(self, signum: int) -> None:
        is_again, self._stopped = bool(self._stopped), self._stopped or signum
        name = signal.Signals(signum).name
        if self._number:
            self._printer.say(f"{name}: ending job {self._number}{' at once' * is_again}")
            if not self._cancel() and is_again:
                self._process.terminate()
        elif is_again:
            self._process.terminate()
        else:
            # It may be in the queue already, and nobody would know how to end it.
            self._printer.say(f"{name}: ending the job as soon as it has a number")

    def _cancel(self) -> bool:
        """End the job, and return whether the cluster has taken that."""
        try:
            ask(tuple(self._queue.cancel(self._number)), self._queue.env)
        except JobError as error:
            self._printer.say(f"job {self._number} may go on: {error}")
            return False
        return True

    def _show(self) -> bool:
        """Print what the job has written since, and return whether that was anything."""
        if self._output is None and self._number:
            with contextlib.suppress(OSError):
                self._output = self._output_of(self._number).open("rb", buffering=0)
        data = b"" if self._output is None else self._output.read(_READ_BYTES)
        for line in self._lines.feed(data or b""):
            self._printer.pass_on(line)
        return bool(data)

    def _drain(self) -> None:
        """Take the rest: a shared folder may show it a little later."""
        limit_s = time.monotonic() + (_SETTLE_S if self._number and not self._stopped else 0.0)
        while self._show() or (self._output is None and time.monotonic() < limit_s):
            time.sleep(0.0 if self._output else _POLL_S)
        for line in self._lines.finish():
            self._printer.pass_on(line)
        if self._output is not None:
            self._output.close()

    @property
    def _text(self) -> str:
        return self._said.decode(errors="replace")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or "it says nothing"
