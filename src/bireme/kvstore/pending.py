"""A call that was begun and may be waited for later; returned by ``KVStore.pushpull_async``."""

import threading
from collections.abc import Callable

__all__ = ("Pending",)


class Pending:
    """What :meth:`~bireme.kvstore.base.KVStore.pushpull_async` began.

    Args:
        finish: Waits for the end, raises the call's error, and completes the results. Called once
            by :meth:`wait`.
        is_done: Whether ``finish`` would not wait.

    Example:
        >>> pending = Pending(lambda: print("the results are here"), lambda: True)
        >>> pending.done
        True
        >>> pending.wait(); pending.wait()
        the results are here
    """

    __slots__ = ("_error", "_finish", "_is_done", "_lock")

    def __init__(
        self,
        finish: Callable[[], None] | None = None,
        is_done: Callable[[], bool] = lambda: True,
    ) -> None:
        self._finish = finish
        self._is_done = is_done
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` would return (or raise) at once."""
        return self._finish is None or self._is_done()

    def wait(self) -> None:
        """Return when the results are in their places; from any thread, any number of times.

        Raises:
            BiremeError: What the call failed with, each time. It ends within the limit of the
                call that began it.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._finish is not None:
                try:
                    self._finish()
                except Exception as error:
                    self._error = error
                    raise
                finally:
                    self._finish = None
