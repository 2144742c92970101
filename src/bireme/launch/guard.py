"""Ends a job's processes when its launcher has died without doing so, as by kill -9.

Run as a script of its own, in a session of its own, by ``launch.local``. Standard input is a pipe
whose other end only the launcher holds: ``+PID`` adds a process group, ``-PID`` takes it out, and
the end of the pipe means that the launcher is gone. Imports nothing but the standard library, so
that it starts within milliseconds.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

__all__ = ("end_groups", "follow", "main")

_GRACE_S = 2.0
_STEP_S = 0.02


def follow(pipe: BinaryIO) -> set[int]:
    """Read until the launcher is gone, and return the groups that it left behind."""
    groups: set[int] = set()
    for line in pipe:
        sign, number = line[:1], line[1:].strip()
        # A half-written last line names no group.
        if not line.endswith(b"\n") or not number.isdigit():
            continue
        if sign == b"+":
            groups.add(int(number))
        else:
            groups.discard(int(number))
    return groups


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
    end_groups(follow(sys.stdin.buffer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
