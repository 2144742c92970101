"""Keeps Ctrl-C from tearing a step of a loop apart, or a turn at driving it.

Python raises ``KeyboardInterrupt`` between almost any two instructions of the main thread. In the
middle of a step that would lose a message for good, and a script that catches it, to save what it
has, would wait for an answer that never comes. Where a thread takes a turn or gives it back, the
turn would stay taken, or a lock locked, and every later call would wait for ever. Called by
``node.worker``, ``node.pump`` and ``collective.drive``.
"""

import signal
import threading
from types import FrameType

__all__ = ("Shield",)


class Shield:
    """Holds SIGINT back while the main thread is inside of it, and lets it through at the end.

    A thread that stays inside for long lets it through every now and then.

    Example:
        >>> shield = Shield()
        >>> with shield:
        ...     pass

    Attributes:
        depth: How often this has been entered. Who has entered it may set it to 0 for a while, and
            then to what it was: nothing comes in between a statement that does no more than that
            and the next one.

    Guarantees:
        Before ``raise_up`` and after ``lower``, and in other threads, entering does nothing.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._before: object = None
        self.depth = 0
        self._pending: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether it holds SIGINT back in this thread, where that comes."""
        return threading.get_ident() == self._thread

    def raise_up(self) -> None:
        """Take over SIGINT, if this is the main thread and somebody handles it in Python."""
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):
            return
        self._before = before
        self._thread = threading.get_ident()
        signal.signal(signal.SIGINT, self._caught)

    def lower(self) -> None:
        """Give SIGINT back, unless somebody else has taken it over since."""
        if self._thread and threading.get_ident() == self._thread:
            if signal.getsignal(signal.SIGINT) == self._caught:
                signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
                self._thread = 0

    def __enter__(self) -> None:
        if threading.get_ident() == self._thread:
            self.depth += 1

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() == self._thread and self.depth:
            self.depth -= 1
            if self._pending is not None and not self.depth:
                signum, self._pending = self._pending, None
                self._pass_on(signum, None)

    def let_through(self) -> None:
        """Raise what was held back, from inside, at a place where nothing is half done."""
        if self._pending is not None and threading.get_ident() == self._thread:
            signum, self._pending = self._pending, None
            self._pass_on(signum, None)

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        if self.depth:
            self._pending = signum
        else:
            self._pass_on(signum, frame)

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        assert callable(self._before)
        self._before(signum, frame)
