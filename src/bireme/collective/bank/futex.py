"""Sleeping until another process changes a word of shared memory: Linux's futexes.

A waiter sleeps in the kernel, so nobody polls and nobody needs a file descriptor. Called by the
step clock (`steps.py`) only.
"""

import ctypes
import errno
import os
import platform
import sys

from bireme.errors import UnsupportedError

__all__ = ("Futex", "futex_number")

_NUMBERS = {
    "x86_64": 202,
    "aarch64": 98,
    "riscv64": 98,
    "loongarch64": 98,
    "ppc64le": 221,
    "s390x": 238,
}
"""The system call's number on each 64-bit machine of Linux."""

_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1
_EXPECTED = (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def futex_number(machine: str | None = None) -> int | None:
    """Return the system call's number, or None where there is none that we know.

    Example:
        >>> futex_number("x86_64"), futex_number("pdp11")
        (202, None)
    """
    if sys.platform != "linux":
        return None
    return _NUMBERS.get(platform.machine() if machine is None else machine)


class Futex:
    """Waits for a 32-bit word in shared memory, and wakes who waits. Thread-safe.

    Both calls release the interpreter's lock.

    Args:
        limit_s: After this long a wait returns whatever has happened, so that its caller can look
            whether those it waits for are alive.

    Raises:
        UnsupportedError: This system has no futexes.
    """

    def __init__(self, limit_s: float = 0.1) -> None:
        number = futex_number()
        if number is None:
            raise UnsupportedError(
                f"no futexes on {sys.platform} {platform.machine()}: use the backend gloo"
            )
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._number = ctypes.c_long(number)
        self._limit = _Timespec(int(limit_s), int(limit_s % 1 * 1e9))
        self._limit_pointer = ctypes.byref(self._limit)

    def wait(self, address: ctypes.c_void_p, value: int) -> None:
        """Sleep while the word at ``address`` is ``value``, until woken or the limit is over.

        A return says nothing: look at the word again. The kernel compares and falls asleep in one
        step, so a wake between the caller's look and this call is not lost.
        """
        failed = self._call(
            self._number, address, _WAIT, ctypes.c_uint32(value), self._limit_pointer, None, 0
        )
        if failed and ctypes.get_errno() not in _EXPECTED:
            raise OSError(ctypes.get_errno(), f"futex: {os.strerror(ctypes.get_errno())}")

    def wake(self, address: ctypes.c_void_p) -> None:
        """Wake everybody who waits for the word at ``address``."""
        self._call(self._number, address, _WAKE, _EVERYBODY, None, None, 0)
