"""One thread waits for many sockets; any thread may give it work. Called by `SocketTransport`.

Only `soon` and `wake` are for any thread. Everything else, and every callback, belongs to the
thread that is in `step`.
"""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from bireme.transport.watching import READING, WRITING, new_watcher

__all__ = ("Loop", "Ready", "Watchable")


class Watchable(Protocol):
    """A socket, or what stands for one."""

    def fileno(self) -> int:
        """Return the descriptor."""


Ready = Callable[[bool, bool], None]
"""``ready(readable, writable)``; may be called once more after `Loop.forget`."""


class Loop:
    """A watcher of sockets, a list of things to do soon, and time limits.

    Example:
        >>> loop = Loop(); loop.soon(lambda: print("done"))
        >>> loop.step(None)
        done
        False
        >>> loop.close()
    """

    def __init__(self) -> None:
        self._watcher = new_watcher()
        self._ready: dict[int, Ready] = {}
        self._soon: deque[Callable[[], None]] = deque()
        self._before_sleep: deque[Callable[[], None]] = deque()
        self._limits: dict[object, tuple[float, Callable[[], None]]] = {}
        self._masks: dict[Watchable, int] = {}
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        self._watcher.register(self._inner.fileno(), READING)
        self._ready[self._inner.fileno()] = self._drain
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
        mask = READING | (WRITING if writing else 0)
        before, descriptor = self._masks.get(watched), watched.fileno()
        if before is None:
            self._watcher.register(descriptor, mask)
        elif before != mask:
            self._watcher.modify(descriptor, mask)
        self._ready[descriptor] = ready
        self._masks[watched] = mask

    def forget(self, watched: Watchable) -> None:
        """Watch no more, and drop its time limit; before its descriptor is closed."""
        self._limits.pop(watched, None)
        if self._masks.pop(watched, None) is not None:
            descriptor = watched.fileno()
            self._watcher.unregister(descriptor)
            del self._ready[descriptor]

    def limit(self, owner: object, deadline_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` at ``deadline_s`` (monotonic), unless ``owner`` is forgotten before."""
        self._limits[owner] = (deadline_s, action)

    def step(self, timeout_s: float | None) -> bool:
        """Wait for something, do it, and return whether `wake` was called."""
        ran = self._run_soon() if self._soon else 0
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
            found = self._watcher.poll(timeout_s)
        finally:
            self._asleep = False
        for descriptor, mask in found:
            # An earlier callback of this round may have closed this one's socket.
            ready = self._ready.get(descriptor)
            if ready is not None:
                ready(mask & ~WRITING != 0, mask & ~READING != 0)
        if self._soon:
            self._run_soon()
        if self._limits:
            self._run_limits()
        woken = self._woken
        if woken:
            self._woken = False
        return woken

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
        if self._inner.fileno() >= 0:
            yield from self._watcher.descriptors()

    def close(self) -> None:
        """Free the descriptors; what is to be done soon is done no more."""
        self._inner.close()
        self._watcher.close()
        self._outer.close()
