"""Handles of submitted operations: asked whether they are done, and waited for.

Made by the engines; `bireme.horovod` numbers them for its users.
"""

from collections.abc import Callable
from typing import Any

from bireme.errors import StateError, WaitTimeout

__all__ = ("Handle",)


class Handle:
    """One submitted operation.

    Args:
        number: Counts this process's operations.
        name: What the operation is called in messages.
        drive: Brings the operation forward until it is done or a limit, in seconds, has passed;
            None for one that is done when its submission returns.

    Guarantees:
        May be used from any thread. `wait` returns the same result, or raises an equal error,
        however often it is called.
    """

    __slots__ = ("_drive", "_error", "_events", "_is_done", "_result", "name", "number")

    def __init__(
        self,
        number: int,
        name: str,
        drive: Callable[[Any, float | None], None] | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self._drive = drive
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._events: list[Any] | None = None

    @property
    def id(self) -> int:
        """Number of the operation among this process's, from 1."""
        return self.number

    def done(self) -> bool:
        """Return whether `wait` would return or raise at once."""
        return self._is_done and all(event.query() for event in self._events or ())

    def wait(self, timeout_s: float | None = None) -> Any:
        """Return the operation's result.

        Args:
            timeout_s: Longest wait; None waits for as long as the ranks are alive.

        Raises:
            CollectiveError: The operation failed; on every rank that takes part in it.
            WaitTimeout: The limit passed; the operation goes on and may be waited for again.
        """
        if not self._is_done and self._drive is not None:
            self._drive(self, timeout_s)
        if not self._is_done:
            raise WaitTimeout(
                f"{self.name} is not done after {timeout_s} s; it goes on, wait for it again"
            )
        if self._error is not None:
            raise _copy_of(self._error)
        for event in self._events or ():
            event.synchronize()
        return self._result

    def add_event(self, event: Any) -> None:
        """Have the result wait for a CUDA event too; before `finish`."""
        if self._events is None:
            self._events = []
        self._events.append(event)

    @property
    def has_ended(self) -> bool:
        """Whether `finish` or `fail` has been called."""
        return self._is_done

    def finish(self, result: Any) -> None:
        """End the operation with its result."""
        self._refuse_done()
        self._result = result
        self._is_done = True

    def fail(self, error: BaseException) -> None:
        """End the operation with an error."""
        self._refuse_done()
        self._error = error
        self._is_done = True

    def _refuse_done(self) -> None:
        if self._is_done:
            raise StateError(f"{self.name} ended twice")

    def __repr__(self) -> str:
        """Return the name and whether the operation is done."""
        return f"<Handle {self.number} {self.name} {'done' if self._is_done else 'under way'}>"


def _copy_of(error: BaseException) -> BaseException:
    """Return an error to raise: a raised one gathers the traceback of everybody who waited."""
    try:
        copy = type(error)(*error.args)
    except TypeError:
        return error
    copy.__cause__ = error.__cause__
    return copy
