"""Whether processes are gone, for tests that promise it."""

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


def wait_until_gone(numbers, limit_s=30):
    """Return once all are gone; a signal that was sent takes a moment to end its process."""
    deadline_s = time.monotonic() + limit_s
    while left := [pid for pid in numbers if not is_gone(pid)]:
        if time.monotonic() > deadline_s:
            raise AssertionError(f"still there after {limit_s} s: {left}")
        time.sleep(0.005)
