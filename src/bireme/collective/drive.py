"""Which thread does an engine's work: one that waits for an operation, else a keeper.

There are two roles, each taken by one thread at a time: control talks with the other ranks, work
exchanges tensors. A hand-over between threads costs more than a small operation, so a caller that
waits takes whatever role is free; the keeper steps in for operations that nobody waits for, and
listens while the process computes. While one thread works, another may still hear of a dead rank.

Ctrl-C is held back while a role is taken or given back, or the role would stay taken and every
later call wait for ever. It is let through while a role is played, which may last without limit.
"""

import threading
import time
from collections.abc import Callable

from bireme.transport.interrupts import Shield

__all__ = ("Drive",)

_GRACE_S = 0.002
"""How long the keeper leaves the roles to the next caller, who then needs no other thread."""
_LOOK_S = 0.2
"""How often a caller that waits looks whether Ctrl-C was pressed: what comes just before a thread
falls asleep in the system does not wake it."""


class Drive:
    """Lets threads take turns.

    Args:
        control: Waits for news of the ranks, at most so many seconds (None: any time), and
            handles it; returns soon after ``wake``.
        has_work: Whether there is something to exchange.
        work: Exchanges one thing.
        wake: Makes the ``control`` under way return; callable from any thread.
        name: Name of the keeper's thread.
    """

    def __init__(
        self,
        control: Callable[[float | None], None],
        has_work: Callable[[], bool],
        work: Callable[[], None],
        wake: Callable[[], None],
        name: str,
    ) -> None:
        self._control = control
        self._has_work = has_work
        self._work = work
        self._wake = wake
        self._shield = Shield()
        self._changed = threading.Condition(threading.Lock())
        self._controller = 0
        self._worker = 0
        self._waiting = 0
        self._turns = 0
        self._is_resting = False
        self._rested = threading.Event()
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)

    def start(self) -> None:
        """Start the keeper; in the main thread, take over SIGINT until `stop`."""
        self._shield.raise_up()
        self._keeper.start()

    def stop(self, timeout_s: float) -> None:
        """End the keeper, if it is not stuck for longer than that in an exchange."""
        with self._shield:
            self._stopping.set()
            self._rested.set()
            self._wake()
        try:
            if self._keeper.is_alive() and self._keeper is not threading.current_thread():
                self._keeper.join(timeout_s)
        finally:
            self._shield.lower()

    def nudge(self) -> None:
        """Note that there is something to report, for which perhaps nobody will wait soon.

        The keeper is not woken while it leaves the roles to callers: most wait for what they submit
        at once, and it would only fight them for the interpreter. It looks when its grace is over.
        """
        if self._controller:
            self._wake()

    def until(self, done: Callable[[], bool], timeout_s: float | None) -> None:
        """Return when ``done()`` holds or the limit has passed, taking the roles that are free."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        me = threading.get_ident()
        with self._shield:
            with self._changed:
                self._waiting += 1
            try:
                while not done():
                    left_s = None if deadline_s is None else deadline_s - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        return
                    self._turn(me, done, left_s)
                    self._shield.let_through()
            finally:
                self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._waiting -= 1
            self._turns += 1
            if self._is_resting and not self._waiting:
                self._is_resting = False
                self._rested.set()

    def _turn(self, me: int, done: Callable[[], bool], left_s: float | None) -> None:
        """Do one thing, or wait until something has changed."""
        limit_s = _LOOK_S if left_s is None else min(left_s, _LOOK_S)
        with self._changed:
            does_work = not self._worker and self._has_work()
            if does_work:
                self._worker = me
            elif not self._controller:
                self._controller = me
            else:
                if self._controller == self._keeper.ident:
                    self._wake()
                if not done():
                    self._changed.wait(limit_s)
                return
        self._do(does_work, limit_s)

    def _do(self, does_work: bool, limit_s: float | None) -> None:
        shield = self._shield
        is_mine, depth = shield.is_mine, shield.depth
        try:
            if is_mine:
                shield.depth = 0
                shield.let_through()
            if does_work:
                self._work()
            else:
                self._control(limit_s)
        finally:
            if is_mine:
                shield.depth = depth
            with self._changed:
                if does_work:
                    self._worker = 0
                    if self._controller and self._waiting:
                        # It may be listening for what has just been done.
                        self._wake()
                else:
                    self._controller = 0
                self._changed.notify_all()

    def _keep(self) -> None:
        me = threading.get_ident()
        seen = -1
        while not self._stopping.is_set():
            self._stopping.wait(_GRACE_S)
            if seen == self._turns:
                self._alone(me)
                self._rest()
            seen = self._turns

    def _rest(self) -> None:
        """Sleep while a caller waits: it does what there is to do."""
        with self._changed:
            self._rested.clear()
            self._is_resting = bool(self._waiting) and not self._stopping.is_set()
        if self._is_resting:
            self._rested.wait()

    def _alone(self, me: int) -> None:
        """Do what there is to do until a caller comes."""
        while not self._waiting and not self._stopping.is_set():
            with self._changed:
                does_work = not self._worker and self._has_work()
                if does_work:
                    self._worker = me
                elif not self._controller:
                    self._controller = me
                else:
                    return
            self._do(does_work, None)
