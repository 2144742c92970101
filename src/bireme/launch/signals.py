"""Signals to the launcher, as events of its loop instead of exceptions anywhere."""

import contextlib
import signal
import socket
import threading
from types import FrameType, TracebackType

__all__ = ("SignalInbox",)

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalInbox:
    """Collects SIGINT, SIGTERM and SIGHUP while it is open, and makes ``fd`` readable.

    A signal that is ignored, as SIGHUP under ``nohup``, stays so. Outside of the main thread,
    where Python delivers none, the inbox stays empty.
    """

    def __init__(self) -> None:
        self._signums: list[int] = []
        self._receiver, self._sender = socket.socketpair()
        self._before: dict[int, object] = {}
        self._wakeup_before = -1

    @property
    def fd(self) -> int:
        """Readable once there is something to take."""
        return self._receiver.fileno()

    def put(self, signum: int) -> None:
        """Add a signal, as if the launcher had got it."""
        self._signums.append(signum)

    def take(self) -> list[int]:
        """Return the signals since the last call, in order."""
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)
        taken, self._signums = self._signums, []
        return taken

    def __enter__(self) -> "SignalInbox":
        for end in (self._receiver, self._sender):
            end.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            for signum in _WATCHED:
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._note)
            self._wakeup_before = signal.set_wakeup_fd(
                self._sender.fileno(), warn_on_full_buffer=False
            )
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        self._receiver.close()
        self._sender.close()

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        self._signums.append(signum)
