"""One thread waits for many sockets; any thread may give it work. Called by `SocketTransport`.

Only `soon` and `wake` are for any thread. Everything else, and every callback, belongs to the
thread that is in `step`.
"""

import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

__all__ = ("Loop", "Ready", "Watchable")


class Watchable(Protocol):
    """A socket, or what stands for one."""

    def fileno(self) -> int:
        """Return the descriptor."""


_INHERITED = getattr(selectors, "EpollSelector", ())
"""The selectors with a descriptor that a forked child has too."""

_Found = list[tuple[selectors.SelectorKey, int]]

Ready = Callable[[bool, bool], None]
"""``ready(readable, writable)``; may be called once more after `Loop.forget`."""


class Loop:
    """A selector, a list of things to do soon, and time limits.

    Args:
        spin_s: How long to look again and again before sleeping, as long as that pays: to wake a
            sleeping thread costs more than a short exchange. 0 never does.

    Example:
        >>> loop = Loop(); loop.soon(lambda: print("done"))
        >>> loop.step(None)
        done
        False
        >>> loop.close()
    """

    def __init__(self, spin_s: float = 0.0) -> None:
        self._spin_s = spin_s
        self._spins = False
        self._selector = selectors.DefaultSelector()
        self._soon: deque[Callable[[], None]] = deque()
        self._before_sleep: deque[Callable[[], None]] = deque()
        self._limits: dict[object, tuple[float, Callable[[], None]]] = {}
        self._masks: dict[Watchable, int] = {}
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        self._selector.register(self._inner, selectors.EVENT_READ, self._drain)
        self._asleep = False
        self._woken = False

    def soon(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the thread that steps, at the start of a step. Any thread."""
        self._soon.append(action)
        self._rouse()

    def before_sleep(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the thread that steps, before it waits again. Any thread."""
        self._before_sleep.append(action)
        self._rouse()

    def wake(self) -> None:
        """Make the step under way, or else the next one, not wait. Any thread."""
        self._woken = True
        self._rouse()

    def _rouse(self) -> None:
        # The stepping thread says that it sleeps, then looks whether there is work; this one leaves
        # work, then looks whether it sleeps. So one of them sees the other.
        if self._asleep:
            with contextlib.suppress(BlockingIOError, OSError):
                self._outer.send(b"\0")

    def _drain(self, _readable: bool, _writable: bool) -> None:
        with contextlib.suppress(BlockingIOError):
            self._inner.recv(4096)

    def watch(self, watched: Watchable, ready: Ready, *, writing: bool) -> None:
        """Call ``ready`` when ``watched`` can be read, or written if ``writing``."""
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        before = self._masks.get(watched)
        if before is None:
            self._selector.register(watched.fileno(), mask, ready)
        elif before != mask:
            self._selector.modify(watched.fileno(), mask, ready)
        self._masks[watched] = mask

    def forget(self, watched: Watchable) -> None:
        """Watch no more, and drop its time limit; before its descriptor is closed."""
        self._limits.pop(watched, None)
        if self._masks.pop(watched, None) is not None:
            self._selector.unregister(watched.fileno())

    def limit(self, owner: object, deadline_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` at ``deadline_s`` (monotonic), unless ``owner`` is forgotten before."""
        self._limits[owner] = (deadline_s, action)

    def step(self, timeout_s: float | None) -> bool:
        """Wait for something, do it, and return whether `wake` was called."""
        ran = self._run_soon()
        while self._before_sleep:
            self._before_sleep.popleft()()
        self._asleep = True
        try:
            if ran or self._soon or self._woken or self._before_sleep:
                timeout_s = 0.0
            elif self._limits:
                now_s = time.monotonic()
                next_s = max(min(limit[0] for limit in self._limits.values()) - now_s, 0.0)
                timeout_s = next_s if timeout_s is None else min(timeout_s, next_s)
            found = self._wait(timeout_s)
        finally:
            self._asleep = False
        woken = self._woken
        if woken:
            self._woken = False
        # An earlier callback of this round may have closed a later one's socket; callbacks know.
        for key, mask in found:
            key.data(bool(mask & selectors.EVENT_READ), bool(mask & selectors.EVENT_WRITE))
        self._run_soon()
        if self._limits:
            self._run_limits()
        return woken

    def _wait(self, timeout_s: float | None) -> _Found:
        """Wait for sockets, first awake and then asleep."""
        if not self._spin_s or (timeout_s is not None and timeout_s <= self._spin_s):
            return self._selector.select(timeout_s)
        began_s = time.perf_counter()
        if self._spins:
            self._asleep = False
            until_s = began_s + self._spin_s
            while time.perf_counter() < until_s:
                found = self._selector.select(0)
                if found or self._soon or self._woken or self._before_sleep:
                    return found
                os.sched_yield()
            self._asleep = True
            if self._soon or self._woken or self._before_sleep:
                return self._selector.select(0)
        found = self._selector.select(timeout_s)
        self._spins = time.perf_counter() - began_s < 4 * self._spin_s
        return found

    def _run_soon(self) -> int:
        num_actions = len(self._soon)
        for _ in range(num_actions):
            self._soon.popleft()()
        return num_actions

    def _run_limits(self) -> None:
        now_s = time.monotonic()
        due = [owner for owner, limit in self._limits.items() if limit[0] <= now_s]
        for owner in due:
            found = self._limits.pop(owner, None)
            if found is not None:
                found[1]()

    def descriptors(self) -> Iterator[int]:
        """Yield the loop's own descriptors that are open; takes no locks."""
        yield self._inner.fileno()
        yield self._outer.fileno()
        # A closed selector has none, and says so by an error; kqueues are not inherited.
        if self._inner.fileno() >= 0 and isinstance(self._selector, _INHERITED):
            yield self._selector.fileno()

    def close(self) -> None:
        """Free the descriptors; what is to be done soon is done no more."""
        self._inner.close()
        self._selector.close()
        self._outer.close()
