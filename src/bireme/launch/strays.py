"""What a job's processes have started and let go of, on an agent's host.

A process whose parent has ended belongs to the first process of the machine from then on, and
nothing tells whose it was. An agent has the kernel hand such processes to itself instead, takes
their ends, and ends what is left of them before it leaves. Linux only; elsewhere nothing is found.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

__all__ = ("adopt", "descendants", "end_descendants", "reap_adopted")

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 50
_PAUSE_S = 0.005


def adopt() -> bool:
    """Have descendants of this process become its children when their parents end.

    Returns:
        Whether the system can do so.
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def descendants(pid: int) -> set[int]:
    """Return the living processes below a process, at any depth.

    Example:
        >>> os.getpid() in descendants(os.getpid())
        False
    """
    below: dict[int, list[int]] = {}
    for each, parent, state in _processes():
        if state != "Z":
            below.setdefault(parent, []).append(each)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in below.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def end_descendants(pid: int) -> None:
    """End by force everything below a process, and what that starts meanwhile."""
    for _ in range(_ROUNDS):
        found = descendants(pid)
        if not found:
            return
        for each in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def reap_adopted(own: Collection[int]) -> None:
    """Take the ends of processes that this one did not start itself.

    Args:
        own: Those that it did; somebody else takes their ends.
    """
    me = os.getpid()
    for pid, parent, state in _processes():
        if parent == me and state == "Z" and pid not in own:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _processes() -> list[tuple[int, int, str]]:
    """Return number, parent and state of every process."""
    found = []
    folder = Path("/proc")
    for name in os.listdir(folder) if folder.is_dir() else ():
        if not name.isdigit():
            continue
        # The name, in brackets, may hold anything.
        with contextlib.suppress(OSError):
            state, parent, *_ = (
                (folder / name / "stat")
                .read_text("utf-8", "replace")
                .rpartition(")")[2]
                .split(maxsplit=2)
            )
            found.append((int(name), int(parent), state))
    return found
