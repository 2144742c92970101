"""Whether the process that ends here has failed, as seen while it ends.

The interpreter tells its exit handlers of an exception (``sys.last_value``) but not of an exit
status: ``SystemExit`` is gone by then, and so is its code. So ``sys.exit`` notes what it is called
with. A script that catches ``SystemExit`` and goes on is told from one that ends by it by the
outermost frame of the main thread, which still shows whether it has returned.

Called by :mod:`bireme.kvstore.dist.session`.
"""

import dis
import sys
import threading
from types import FrameType
from typing import NoReturn

__all__ = ("ExitWatch",)

_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
_STATUS_BITS = 0xFF


class ExitWatch:
    """Looks out for the end of the process, from now until :meth:`stop`.

    Guarantees:
        ``sys.exit`` does what it did; afterwards it is what it was, unless somebody else has put
        another function there meanwhile.

    Example:
        >>> watch = ExitWatch()
        >>> try:
        ...     sys.exit(3)
        ... except SystemExit as error:
        ...     print(error.code)
        3
        >>> watch.stop()
    """

    def __init__(self) -> None:
        self._status = 0
        self._main = _outermost_frame()
        self._exit = sys.exit
        self._watching = self._note_and_exit
        sys.exit = self._watching

    def stop(self) -> None:
        """Watch no more."""
        if sys.exit == self._watching:
            sys.exit = self._exit
        self._main = None

    def failure(self) -> str:
        """Return why the process that is ending has failed; empty when it ends well."""
        error = getattr(sys, "last_value", None)
        if error is not None:
            return f"{type(error).__name__}: {error}"
        if self._status and not _has_returned(self._main):
            return f"it ended with exit code {self._status}"
        return ""

    def _note_and_exit(self, status: object = None, /) -> NoReturn:
        # In any other thread it ends that thread alone.
        if threading.current_thread() is threading.main_thread():
            self._status = _exit_code(status)
        self._exit(status)  # type: ignore[arg-type]


def _exit_code(status: object) -> int:
    if status is None:
        return 0
    return status & _STATUS_BITS if isinstance(status, int) else 1


def _outermost_frame() -> FrameType | None:
    """Return the frame with which the main thread began, and with which it will end."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _has_returned(frame: FrameType | None) -> bool:
    if frame is None or frame.f_lasti < 0:
        return False
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in _RETURNS
