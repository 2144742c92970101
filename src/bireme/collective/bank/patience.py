"""Waiting for keys of a ``torch.distributed`` store so that signals are heard.

A store's own ``wait`` sleeps outside of the interpreter until its limit: Ctrl-C would be noticed
minutes later. Called where ranks meet.
"""

import time
from collections.abc import Sequence
from typing import Protocol

__all__ = ("Checks", "are_set_within")

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05


class Checks(Protocol):
    """What is used of a store."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all of ``keys`` are set."""


def are_set_within(store: Checks, keys: Sequence[str], limit_s: float) -> bool:
    """Return True once all keys are set, or False when the limit is over.

    Args:
        store: Of any kind.
        keys: What others set.
        limit_s: How long to wait.

    Raises:
        RuntimeError: The store cannot be reached.

    Example:
        >>> from torch.distributed import HashStore
        >>> store = HashStore()
        >>> store.set("a", "1")
        >>> are_set_within(store, ["a"], 0.0), are_set_within(store, ["a", "b"], 0.01)
        (True, False)
    """
    deadline_s = time.monotonic() + limit_s
    pause_s = _FIRST_PAUSE_S
    while not store.check(list(keys)):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return True
