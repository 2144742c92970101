"""Operations of a process group, one after the other: at once when nothing is ahead, or later.

A call that its caller waits for runs in the caller's thread if nothing is under way: handing it to
another thread would cost more than a small operation does. Other calls queue for one thread, which
starts with the first of them. Called by `BiremeProcessGroup`.
"""

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
from torch.distributed import Work
from torch.futures import Future

from bireme.errors import ConfigError, MismatchError, StateError, WaitTimeout

__all__ = ("Lane", "LaneWork")

_HARMLESS = (ConfigError, MismatchError, StateError)
"""Errors that leave the group as it was: all ranks raise them, or this one before it begins."""


class LaneWork(Work):
    """One operation. See ``torch.distributed.Work``.

    Args:
        lane: Who runs it.
        run: Does it.
        result: What the operation's future holds when it is done.
    """

    def __init__(self, lane: "Lane", run: Callable[[], object], result: Any) -> None:
        super().__init__()
        self._lane = lane
        self._result = result
        self._future: Future[Any] | None = None
        self.run = run
        self.is_done = False
        self.error: BaseException | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True when it is done.

        Raises:
            WaitTimeout: ``timeout`` is over; the operation goes on.
            Exception: What went wrong in it.
        """
        limit_s = timeout.total_seconds() if timeout is not None else 0.0
        self._lane.await_work(self, limit_s if limit_s > 0 else None)
        if self.error is not None:
            raise self.error
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it has ended, well or not."""
        return self.is_done

    def is_success(self) -> bool:
        """Return whether it has ended well."""
        return self.is_done and self.error is None

    def exception(self) -> BaseException | None:
        """Return what went wrong, if it has ended."""
        return self.error

    def result(self) -> Any:
        """Return the tensors that it changed."""
        return self._result

    def get_future(self) -> "Future[Any]":
        """Return a future of the tensors that it changes."""
        with self._lane.condition:
            if self._future is None:
                self._future = Future()
                if self.is_done:
                    self._future.set_result(None)
                else:
                    self._lane.expect_callbacks()
            # An exception set by set_exception() would reach waiters in Python, but not DDP's.
            return self._future.then(self._outcome)

    def _outcome(self, _: "Future[Any]") -> Any:
        if self.error is not None:
            raise self.error
        return self._result

    @property
    def has_future(self) -> bool:
        """Whether somebody has asked for a future."""
        return self._future is not None

    def finish(self) -> None:
        """Tell the future, and run what was hung onto it; the lane has set the rest."""
        if self._future is not None:
            self._future.set_result(None)


class Lane:
    """Runs operations in the order of their submission. Thread-safe.

    Args:
        on_broken: Called with the error when an operation ends so that the group is useless.
    """

    def __init__(self, on_broken: Callable[[BaseException], None]) -> None:
        self.condition = threading.Condition()
        self._on_broken = on_broken
        self._pending: deque[LaneWork] = deque()
        self._is_busy = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._finished: SimpleQueue[LaneWork | None] = SimpleQueue()
        self._teller: threading.Thread | None = None
        self._num_told = 0

    def expect_callbacks(self) -> None:
        """Have a thread that tells futures. With `condition` held.

        What hangs on a future may itself wait for an operation, as PowerSGD's hook does; in the
        thread that runs operations it would wait for ever.
        """
        if self._teller is None and not self._is_closed:
            self._teller = threading.Thread(target=self._tell, name="bireme-futures", daemon=True)
            self._teller.start()

    def _tell(self) -> None:
        while (work := self._finished.get()) is not None:
            work.finish()
            with self.condition:
                self._num_told -= 1

    def submit(self, run: Callable[[], object], result: Any, *, is_async: bool) -> LaneWork:
        """Run an operation, or queue it.

        Args:
            run: Does it; may block.
            result: What its future will hold.
            is_async: The caller goes on; otherwise it is done, or has failed, on return.

        Raises:
            StateError: The group was destroyed.
            Exception: What went wrong, unless ``is_async``.
        """
        work = LaneWork(self, run, result)
        with self.condition:
            if self._is_closed:
                raise StateError("this process group was destroyed")
            at_once = not is_async and not self._is_busy and not self._pending
            if at_once:
                self._is_busy = True
            else:
                self._pending.append(work)
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._drive, name="bireme-collectives", daemon=True
                    )
                    self._thread.start()
                self.condition.notify_all()
        if at_once:
            self._run(work)
        if not is_async:
            work.wait()
        return work

    def await_work(self, work: LaneWork, limit_s: float | None) -> None:
        """Return when ``work`` is done."""
        if work.is_done:
            return
        with self.condition:
            if not self.condition.wait_for(lambda: work.is_done, limit_s):
                raise WaitTimeout(f"the operation is not done after {limit_s:g} s")

    def close(self, on_stuck: Callable[[], None]) -> None:
        """End. What is under way fails soon, what is queued fails at once.

        Args:
            on_stuck: Called to make the operation under way give up.
        """
        with self.condition:
            self._is_closed = True
            dropped, self._pending = list(self._pending), deque()
            is_busy, thread = self._is_busy, self._thread
            self.condition.notify_all()
        if is_busy:
            on_stuck()
        for work in dropped:
            self._end(work, StateError("this process group was destroyed before its turn"))
        self._finished.put(None)
        for each in (thread, self._teller):
            if each is not None and each is not threading.current_thread():
                each.join(5.0)

    def _drive(self) -> None:
        while True:
            with self.condition:
                self.condition.wait_for(
                    lambda: self._is_closed or (self._pending and not self._is_busy)
                )
                if self._is_closed:
                    return
                work = self._pending.popleft()
                self._is_busy = True
            self._run(work)

    def _run(self, work: LaneWork) -> None:
        """Run one operation; ``_is_busy`` is set by who calls."""
        error: BaseException | None = None
        try:
            with torch.no_grad():
                work.run()
        except BaseException as found:
            error = found
            if not isinstance(found, _HARMLESS):
                self._on_broken(found)
        self._end(work, error, was_busy=True)

    def _end(self, work: LaneWork, error: BaseException | None, *, was_busy: bool = False) -> None:
        with self.condition:
            work.error = error
            work.is_done = True
            if was_busy:
                self._is_busy = False
            self.condition.notify_all()
            # Who is being told may wait for this one: then it is told here.
            is_told = work.has_future and self._teller is not None and not self._num_told
            self._num_told += is_told
        if is_told:
            self._finished.put(work)
        else:
            work.finish()
