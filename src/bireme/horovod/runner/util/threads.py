"""A thread in one line, as scripts and tests of Horovod's users start them."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from bireme.errors import ConfigError

__all__ = ("in_thread",)


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Run a function in a thread of its own and return the thread.

    Args:
        target: The function.
        args: Its arguments.
        name: Of the thread.
        daemon: Whether the process may end while it runs.
        silent: Whether its exceptions vanish.
    """
    if not isinstance(args, tuple):
        raise ConfigError(f"args must be a tuple, got {type(args).__name__}; write (arg,)")

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
