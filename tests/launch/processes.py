"""Whether processes are gone, asleep, or have left something, for tests that promise it."""

import contextlib
import os
import re
import time
from pathlib import Path


def pids(lines):
    """Return the numbers that lines such as ``W[0] | pid 123`` name."""
    return [int(re.search(r"pid (\d+)", line)[1]) for line in lines]


def is_gone(pid):
    """Whether the process has ended; a zombie that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_asleep(pid, limit_s=60):
    """Return once a process's first thread waits for something; looking takes it a moment."""
    deadline_s = time.monotonic() + limit_s
    in_a_row = 0
    while in_a_row < 10:
        assert time.monotonic() < deadline_s, f"{pid} is busy"
        time.sleep(0.01)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        in_a_row = in_a_row + 1 if state == "S" else 0


def shared_memory(numbers=()):
    """Return what is in ``/dev/shm`` that is named after the library, or after these processes."""
    which = "|".join(["bireme", *(rf"(?<![^\W_]){pid}(?![^\W_])" for pid in numbers)])
    return {name for name in os.listdir("/dev/shm") if re.search(which, name)}


def names_in_shared_memory(pid):
    """Return the files of ``/dev/shm`` that a living process has open or mapped."""
    folder = Path(f"/proc/{pid}")
    held = {line.split(maxsplit=5)[-1] for line in (folder / "maps").read_text().splitlines()}
    for file in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held.add(os.readlink(file))
    return {Path(each).name for each in held if each.startswith("/dev/shm/")}


def wait_until_gone(numbers, limit_s=30):
    """Return once all are gone; a signal that was sent takes a moment to end its process."""
    deadline_s = time.monotonic() + limit_s
    while left := [pid for pid in numbers if not is_gone(pid)]:
        if time.monotonic() > deadline_s:
            raise AssertionError(f"still there after {limit_s} s: {left}")
        time.sleep(0.005)
