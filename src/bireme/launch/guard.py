"""Ends a job's processes when its launcher has died without doing so, as by kill -9.

Run as a script of its own, in a session of its own, by ``launch.crew``. Standard input is a pipe
whose other end only the launcher holds: ``+PID`` adds a process group, ``-PID`` takes it out,
``=MARK`` says how to tell what has left its group, and the end of the pipe means that the launcher
is gone. Imports nothing but the standard library, so that it starts within milliseconds.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

__all__ = ("Mark", "end_groups", "end_marked", "follow", "main", "mark_line", "marked")

Mark = frozenset[bytes]
"""Variables, as ``NAME=VALUE``, that a process of a job and its descendants have, and no others."""

_GRACE_S = 2.0
_STEP_S = 0.02
_ROUNDS = 50
_PROC = "/proc"


def follow(pipe: BinaryIO) -> tuple[set[int], set[Mark]]:
    """Read until the launcher is gone; return the groups that it left behind, and their marks."""
    groups: set[int] = set()
    marks: set[Mark] = set()
    for line in pipe:
        sign, text = line[:1], line[1:].strip()
        # A half-written last line names nothing.
        if not line.endswith(b"\n"):
            continue
        if sign == b"=":
            with contextlib.suppress(ValueError):
                marks.add(_mark_of(text))
        elif sign == b"+" and text.isdigit():
            groups.add(int(text))
        elif sign == b"-" and text.isdigit():
            groups.discard(int(text))
    return groups, marks


def mark_line(mark: Mark) -> bytes:
    r"""Return the line that makes a mark known.

    Example:
        >>> mark_line(frozenset([b"A=1"]))
        b'=413d31\n'
    """
    return b"=" + b"\0".join(sorted(mark)).hex().encode() + b"\n"


def _mark_of(text: bytes) -> Mark:
    """Return the mark that ``mark_line`` was given; nothing less: it would be everybody's."""
    variables = bytes.fromhex(text.decode("ascii", "replace")).split(b"\0")
    if not all(b"=" in variable for variable in variables):
        raise ValueError(variables)
    return frozenset(variables)


def end_groups(
    groups: Iterable[int],
    *,
    kill: Callable[[int, int], None] = os.killpg,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Ask each process group to end, and end those by force that have not after two seconds."""
    left = [group for group in groups if _send(kill, group, signal.SIGTERM)]
    waited_s = 0.0
    while left and waited_s < _GRACE_S:
        sleep(_STEP_S)
        waited_s += _STEP_S
        left = [group for group in left if _send(kill, group, 0)]
    for group in left:
        _send(kill, group, signal.SIGKILL)


def marked(marks: Iterable[Mark], proc: str = _PROC) -> set[int]:
    """Return the processes that were started with all variables of one of the marks.

    Whatever has put itself into a session of its own still has them. Nothing is found on systems
    without ``/proc``, nor of other users.
    """
    wanted = list(marks)
    if not wanted or not os.path.isdir(proc):
        return set()
    numbers = (int(name) for name in os.listdir(proc) if name.isdigit())
    return {pid for pid in numbers if pid != os.getpid() and _has(pid, wanted, proc)}


def end_marked(marks: Iterable[Mark]) -> None:
    """End by force every process that has one of the marks, and what it starts meanwhile."""
    wanted = list(marks)
    for _ in range(_ROUNDS):
        found = marked(wanted)
        if not found:
            return
        for pid in found:
            _kill(pid, wanted)
        time.sleep(_STEP_S / 4)


def _has(pid: int, marks: list[Mark], proc: str = _PROC) -> bool:
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            variables = set(file.read().split(b"\0"))
    except OSError:
        return False
    return any(mark <= variables for mark in marks)


def _kill(pid: int, marks: list[Mark]) -> None:
    """Kill a process, unless its number is another one's by now."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if _has(pid, marks):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def _send(kill: Callable[[int, int], None], group: int, signum: int) -> bool:
    try:
        kill(group, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> int:
    """Wait for the launcher's end, then end what it left behind."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    groups, marks = follow(sys.stdin.buffer)
    end_groups(groups)
    end_marked(marks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
