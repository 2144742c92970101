"""Operations of a process group, one after the other: at once when nothing is ahead, or later.

A call that its caller waits for runs in the caller's thread if nothing is under way: handing it to
another thread would cost more than a small operation does. Other calls queue for one thread, which
starts with the first of them; whoever waits for one that is queued carries on with the queue itself
in the meantime. Operations that lie next to each other in the queue may run as one.
Called by `BiremeProcessGroup`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from time import monotonic
from typing import Any

from torch.distributed import Work
from torch.futures import Future

from bireme.errors import ConfigError, MismatchError, StateError, WaitTimeout

__all__ = ("Joint", "Lane", "LaneWork")

_HARMLESS = (ConfigError, MismatchError, StateError)
"""Errors that leave the group as it was: all ranks raise them, or this one before it begins."""

Joint = tuple[Any, Any]
"""What may run as one with its like: a key, equal if it may, and what is handed over."""


class LaneWork(Work):
    """One operation. See ``torch.distributed.Work``.

    Args:
        lane: Who runs it.
        run: Does it.
        result: What the operation's future holds when it is done.
        joint: If it may run together with others.
    """

    def __init__(
        self, lane: "Lane", run: Callable[[], object], result: Any, joint: Joint | None = None
    ) -> None:
        super().__init__()
        self._lane = lane
        self._result = result
        self._future: Future[Any] | None = None
        self.run = run
        self.joint = joint
        self.is_done = False
        self.error: BaseException | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True when it is done.

        Raises:
            WaitTimeout: ``timeout`` is over; the operation goes on.
            Exception: What went wrong in it.
        """
        if not self.is_done:
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
        with self._lane.lock:
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
        run_joint: Runs several operations as one: is given what they hand over, in order, and
            returns how many of them are done, 1 or more. What it raises befalls the first.
        most_joint: How many it takes.
    """

    def __init__(
        self,
        on_broken: Callable[[BaseException], None],
        run_joint: Callable[[Sequence[Any]], int] | None = None,
        most_joint: int = 32,
    ) -> None:
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._queued = threading.Condition(self.lock)
        self._on_broken = on_broken
        self._run_joint = run_joint
        self._most_joint = most_joint if run_joint is not None else 1
        self._pending: deque[LaneWork] = deque()
        self._is_busy = False
        self._is_closed = False
        self._num_waiting = self._num_helping = 0
        self._thread: threading.Thread | None = None
        self._finished: SimpleQueue[LaneWork | None] = SimpleQueue()
        self._teller: threading.Thread | None = None
        self._num_told = 0

    def expect_callbacks(self) -> None:
        """Have a thread that tells futures. With `lock` held.

        What hangs on a future may itself wait for an operation, as PowerSGD's hook does; in the
        thread that runs operations it would wait for ever.
        """
        if self._teller is None and not self._is_closed:
            self._teller = threading.Thread(target=self._tell, name="bireme-futures", daemon=True)
            self._teller.start()

    def _tell(self) -> None:
        while (work := self._finished.get()) is not None:
            work.finish()
            with self.lock:
                self._num_told -= 1

    def submit(
        self,
        run: Callable[[], object],
        result: Any,
        *,
        is_async: bool,
        joint: Joint | None = None,
    ) -> LaneWork:
        """Run an operation, or queue it.

        Args:
            run: Does it; may block.
            result: What its future will hold.
            is_async: The caller goes on; otherwise it is done, or has failed, on return.
            joint: If it may run together with others.

        Raises:
            StateError: The group was destroyed.
            Exception: What went wrong, unless ``is_async``.
        """
        work = LaneWork(self, run, result, joint)
        with self.lock:
            if self._is_closed:
                raise StateError("this process group was destroyed")
            at_once = not (is_async or self._is_busy or self._pending)
            if at_once:
                self._is_busy = True
            else:
                self._pending.append(work)
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._drive, name="bireme-collectives", daemon=True
                    )
                    self._thread.start()
                self._queued.notify()
        if at_once:
            self._run([work])
        if not is_async:
            work.wait()
        return work

    def await_work(self, work: LaneWork, limit_s: float | None) -> None:
        """Return when ``work`` is done; without a limit run what is ahead of it, and it."""
        deadline_s = None if limit_s is None else monotonic() + limit_s
        while True:
            with self.lock:
                works = self._claim(work, deadline_s)
                is_late = not (works or work.is_done)
            if is_late:
                raise WaitTimeout(f"the operation is not done after {limit_s:g} s")
            if works is None:
                return
            error = self._run(works)
            # What is no Exception is meant for this thread, whichever operation it met.
            if error is not None and not isinstance(error, Exception):
                raise error

    def _claim(self, work: LaneWork, deadline_s: float | None) -> list[LaneWork] | None:
        """Return what to run while waiting for ``work``, or None: it is done or late. Locked."""
        helps = deadline_s is None
        self._num_waiting += 1
        self._num_helping += helps
        try:
            while not work.is_done:
                if helps and not self._is_busy and self._pending:
                    return self._take()
                left_s = None if deadline_s is None else deadline_s - monotonic()
                if not self._changed.wait(left_s):
                    break
            return None
        finally:
            self._num_waiting -= 1
            self._num_helping -= helps
            if self._pending and not self._is_busy:
                self._queued.notify()

    def _take(self) -> list[LaneWork]:
        """Return the first of the queue, and those that may run as one with it. Locked."""
        self._is_busy = True
        pending = self._pending
        works = [pending.popleft()]
        joint = works[0].joint
        while (
            joint is not None
            and pending
            and len(works) < self._most_joint
            and (other := pending[0].joint) is not None
            and other[0] == joint[0]
        ):
            works.append(pending.popleft())
        return works

    def close(self, on_stuck: Callable[[], None]) -> None:
        """End. What is under way fails soon, what is queued fails at once.

        Args:
            on_stuck: Called to make the operation under way give up.
        """
        with self.lock:
            self._is_closed = True
            dropped, self._pending = list(self._pending), deque()
            is_busy, thread = self._is_busy, self._thread
            self._queued.notify_all()
        if is_busy:
            on_stuck()
        self._end(dropped, StateError("this process group was destroyed before its turn"))
        self._finished.put(None)
        for each in (thread, self._teller):
            if each is not None and each is not threading.current_thread():
                each.join(5.0)

    def _drive(self) -> None:
        while True:
            with self.lock:
                while not self._is_closed and (
                    self._is_busy or self._num_helping or not self._pending
                ):
                    self._queued.wait()
                if self._is_closed:
                    return
                works = self._take()
            self._run(works)

    def _run(self, works: list[LaneWork]) -> BaseException | None:
        """Run operations, and put back what was not done; ``_is_busy`` is set by who calls."""
        error: BaseException | None = None
        num_done = 1
        try:
            if len(works) == 1:
                works[0].run()
            else:
                assert self._run_joint is not None
                num_done = self._run_joint([work.joint[1] for work in works if work.joint])
        except BaseException as found:
            error = found
            if not isinstance(found, _HARMLESS):
                self._on_broken(found)
        self._end(works[:num_done], error, works[num_done:], was_busy=True)
        return error

    def _end(
        self,
        works: Sequence[LaneWork],
        error: BaseException | None,
        put_back: Sequence[LaneWork] = (),
        *,
        was_busy: bool = False,
    ) -> None:
        told = []
        with self.lock:
            if was_busy:
                self._is_busy = False
            dropped = put_back if self._is_closed else ()
            if put_back and not dropped:
                self._pending.extendleft(reversed(put_back))
            for work in works:
                work.error = error
                work.is_done = True
                # Who is being told may wait for this one: then it is told here.
                if work.has_future and self._teller is not None and not self._num_told:
                    self._num_told += 1
                    told.append(work)
            if self._num_waiting:
                self._changed.notify_all()
            if self._pending:
                self._queued.notify()
        for work in works:
            if work in told:
                self._finished.put(work)
            else:
                work.finish()
        if dropped:
            self._end(dropped, StateError("this process group was destroyed before its turn"))
