"""Bytes that wait until a pipe takes them: whoever talks to an agent, or is one, never blocks."""

import os
from collections import deque

__all__ = ("Outbox",)


class Outbox:
    """What has to be written to a descriptor.

    Args:
        fd: A pipe or socket; made non-blocking.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._waiting: deque[memoryview] = deque()
        self.size_bytes = 0
        """How much waits."""
        self.is_broken = False
        """Whether nobody reads at the other end any more; what is put is dropped then."""

    @property
    def fd(self) -> int:
        """The descriptor."""
        return self._fd

    def put(self, data: bytes) -> None:
        """Add bytes, and write as much as the pipe takes."""
        if self.is_broken:
            return
        self._waiting.append(memoryview(data))
        self.size_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Write as much as the pipe takes."""
        try:
            while self._waiting:
                written = os.write(self._fd, self._waiting[0])
                self.size_bytes -= written
                if written < len(self._waiting[0]):
                    self._waiting[0] = self._waiting[0][written:]
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            return
        except OSError:
            # The reader is gone; that its process is, is noticed where it is waited for.
            self.is_broken = True
            self._waiting.clear()
            self.size_bytes = 0
