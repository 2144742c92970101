"""Who drives a node's loop: the thread that waits for its outcome, else a keeper.

A hand-over from one thread to another costs more than a small push and pull. So a caller that
waits drives the loop itself, and the keeper, which answers heartbeats and sends what is queued
while the user's thread computes, steps in only when nobody has driven for a moment: at once while
calls are under way for which nobody waits yet.
"""

import threading
from collections.abc import Callable

from bireme.transport.interrupts import Shield

__all__ = ("Pump",)

_GRACE_S = 0.005
"""How long the keeper leaves the loop to the next caller; far below a heartbeat's interval."""

_LOOK_S = 0.2
"""How often a caller that waits for another thread's turn looks whether Ctrl-C was pressed."""


class Pump:
    """Lets one thread at a time drive a loop, and the others wait for what it brings.

    Args:
        step: Waits for the next event and handles it; returns soon after ``wake``.
        wake: Makes the ``step`` under way return; callable from any thread.
        name: Name of the keeper's thread.
        shield: Keeps signals out of steps, and of the taking and giving of turns.
        grace_s: How long the keeper leaves the loop to the next caller.

    Guarantees:
        ``step`` is called by one thread at a time. A waiting caller returns as soon as its
        condition holds, whoever brought it about. An exception of ``step`` reaches the thread
        that drove it; when that is the keeper, it reaches the next caller instead.
    """

    def __init__(
        self,
        step: Callable[[], None],
        wake: Callable[[], None],
        name: str,
        shield: Shield | None = None,
        grace_s: float = _GRACE_S,
    ) -> None:
        self._step = step
        self._grace_s = grace_s
        self._shield = shield or Shield()
        self._wake = wake
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._driver: int | None = None
        self._waiting = 0
        self._turns = 0
        self._background = 0
        self._nudged = threading.Event()
        self._stopping = threading.Event()
        self._broken: BaseException | None = None
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)

    def start(self) -> None:
        """Start the keeper."""
        self._keeper.start()

    def stop(self) -> None:
        """End the keeper; callers that wait go on driving by themselves."""
        with self._shield:
            self._stopping.set()
            self._nudged.set()
            self._wake()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()

    def until(self, done: Callable[[], bool]) -> None:
        """Return when ``done()`` holds, driving the loop unless another thread does.

        ``done`` must come to hold through a ``step``; limits are the loop's own matter: every call
        that a caller waits for ends within its limit, so the driver, and with it the others, go on.
        """
        with self._shield:
            if self._driver == threading.get_ident():
                # A handler of signals that was let through in this thread's own turn.
                self._drive(done)
            elif self._take_free() or self._take(done):
                try:
                    self._drive(done)
                finally:
                    self._give()

    def _drive(self, done: Callable[[], bool]) -> None:
        while not done():
            self._step()
            self._shield.let_through()

    def background(self, change: int) -> None:
        """Note that there are more, or fewer, calls under way for which nobody waits yet."""
        with self._shield, self._changed:
            self._background += change
            if self._driver is None:
                self._nudge()

    def _take_free(self) -> bool:
        """Become the driver if there is none, and nothing has happened that a caller must hear."""
        with self._lock:
            if self._driver is not None or self._broken is not None:
                return False
            self._driver = threading.get_ident()
            return True

    def _take(self, done: Callable[[], bool]) -> bool:
        """Become the driver (true), or return because ``done()`` holds (false)."""
        while True:
            with self._changed:
                self._waiting += 1
                try:
                    if self._driver == self._keeper.ident and self._driver is not None:
                        self._wake()
                    if self._driver is not None and not done():
                        self._changed.wait(_LOOK_S)
                    self._raise_broken()
                    if done():
                        return False
                    if self._driver is None:
                        self._driver = threading.get_ident()
                        return True
                finally:
                    self._waiting -= 1
                    if self._driver is None:
                        self._nudge()
            self._shield.let_through()

    def _give(self) -> None:
        with self._lock:
            self._driver = None
            self._turns += 1
            if self._waiting:
                self._changed.notify_all()
            elif self._background:
                self._nudged.set()

    def _nudge(self) -> None:
        """Let the keeper drive at once if there is work that nobody waits for. Lock held."""
        if self._background and not self._waiting:
            self._nudged.set()

    def completed(self) -> None:
        """Tell the callers that wait to look at their conditions again; called from ``step``."""
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _keep(self) -> None:
        seen = -1
        # It looks every now and then, and is told only while there is work in the background: to
        # wake it up at the end of every call would cost more than a small call itself.
        while not self._stopping.is_set():
            nudged = self._nudged.wait(self._grace_s)
            self._nudged.clear()
            if self._stopping.is_set():
                return
            with self._changed:
                rested = nudged or seen == self._turns
                idle = self._driver is None and not self._waiting and rested
                seen = self._turns
                if not idle:
                    continue
                self._driver = threading.get_ident()
            self._drive_alone()

    def _drive_alone(self) -> None:
        try:
            while not self._waiting and not self._stopping.is_set():
                self._step()
        except BaseException as error:  # kept for the next caller: nobody else would see it
            with self._changed:
                self._broken = error
                self._stopping.set()
        finally:
            self._give()
