"""What is said about refused connections: enough to see what goes on, never a flood of lines.

Called by `SocketTransport`, whose ports anybody on the network may knock at as often as they like.
"""

import logging
import time
from collections.abc import Callable

__all__ = ("RefusalLog",)

_log = logging.getLogger(__name__)

_PERIOD_S = 10.0
_MOST = 10


class RefusalLog:
    """Logs the first refusals of each ten seconds, and then how many more there were.

    Args:
        now_s: The clock.

    Example:
        >>> refusals = RefusalLog()
        >>> for _ in range(1000):
        ...     refusals.add("no handshake within 5 s")
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._began_s = now_s()
        self._count = 0

    def add(self, reason: object) -> None:
        """Note that a connection was refused."""
        now_s = self._now_s()
        if now_s - self._began_s > _PERIOD_S:
            if self._count > _MOST:
                _log.warning("refused %d more connections", self._count - _MOST)
            self._began_s, self._count = now_s, 0
        self._count += 1
        if self._count <= _MOST:
            _log.warning("refused a connection: %s", reason)
        elif self._count == _MOST + 1:
            _log.warning("refused more connections; they are counted for %g s", _PERIOD_S)
