"""Which processor cores this process may use, which decides whether ranks may look before sleeping.

Called by `Segment`, which tells the other ranks, and by the step clock (`steps.py`).
"""

import os
from pathlib import Path

__all__ = ("core_set", "quota_cores")

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def core_set(room_bytes: int) -> bytes:
    """Return the cores that this process may run on: bit i of the little-endian number is core i.

    Args:
        room_bytes: The result's length; cores past its end are left out.

    Example:
        >>> len(core_set(256))
        256
    """
    if hasattr(os, "sched_getaffinity"):
        cores = set(os.sched_getaffinity(0))
    else:
        cores = set(range(os.cpu_count() or 1))
    bits = sum(1 << core for core in cores if core < 8 * room_bytes)
    return bits.to_bytes(room_bytes, "little")


def quota_cores(root: Path = _ROOT, own: Path = _OWN) -> float:
    """Return how many cores' time the container's limit leaves; infinite without a limit.

    Args:
        root: Where control groups are mounted; for tests.
        own: The file that names this process's groups; for tests.

    Example:
        >>> quota_cores() > 0
        True
    """
    paths = {line.split(":", 2)[2].strip("/") for line in _read(own).splitlines() if ":" in line}
    found = [float("inf")]
    for path in sorted(paths | {""}):
        parts = Path(path).parts
        for depth in range(len(parts) + 1):
            below = Path(*parts[:depth])
            found.append(_ratio(*_read(root / below / "cpu.max").split()))
            old = root / "cpu" / below
            quota, period = _read(old / "cpu.cfs_quota_us"), _read(old / "cpu.cfs_period_us")
            found.append(_ratio(*quota.split(), *period.split()))
    return min(found)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _ratio(*told: str) -> float:
    """Return quota over period; anything that is not two positive numbers is no limit."""
    if len(told) == 2 and all(each.isdecimal() for each in told) and int(told[1]):
        return int(told[0]) / int(told[1])
    return float("inf")
