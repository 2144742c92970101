"""Who works on which keys: the locks that a call takes, and what it may not be called from.

Called by every store of one process.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from bireme.errors import StateError
from bireme.kvstore.entry import Entry
from bireme.kvstore.table import Table

__all__ = ("Holding",)


class Holding:
    """Lets one thread at a time work on a key, and on all keys when a store changes.

    Args:
        name: The store's type, for messages.
        table: Its keys.

    Attributes:
        is_closed: Whether the store is closed; set by who holds everything.

    Guarantees:
        Locks are taken in the order of initialisation, so calls with overlapping keys cannot
        block each other for ever. A call from inside another one on the same thread is an error.

    Example:
        >>> table = Table()
        >>> table.add({"weight": torch.zeros(2)})
        >>> with Holding("local", table).everything() as entries:
        ...     [entry.key for entry in entries]
        ['weight']
    """

    def __init__(self, name: str, table: Table) -> None:
        self._name = name
        self._table = table
        self._configuring = threading.Lock()
        self._inside = threading.local()
        self.is_closed = False

    @contextmanager
    def keys(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Return a context in which nobody else works on ``entries``.

        Raises:
            StateError: The store is closed, or this thread is in such a context already.
        """
        self._refuse_reentry()
        ordered = sorted(entries, key=_ordinal)
        taken = 0
        self._inside.busy = True
        try:
            for entry in ordered:
                entry.lock.acquire()
                taken += 1
            self.refuse_closed()
            with torch.no_grad():
                for entry in ordered:
                    entry.fence.enter(entry.value.device)
                yield
        finally:
            for entry in ordered[:taken]:
                entry.fence.leave(entry.value.device)
                entry.lock.release()
            self._inside.busy = False

    @contextmanager
    def everything(self) -> Iterator[list[Entry]]:
        """Return a context in which nobody else works on any key or changes the store.

        Raises:
            StateError: As for :meth:`keys`.
        """
        self._refuse_reentry()
        with self._configuring:
            entries = self._table.all()
            with self.keys(entries):
                yield entries

    def refuse_closed(self) -> None:
        """Raise if the store is closed.

        Raises:
            StateError: It is.
        """
        if self.is_closed:
            raise StateError(f"this {self._name!r} store is closed; create another one")

    def _refuse_reentry(self) -> None:
        if getattr(self._inside, "busy", False):
            raise StateError(
                "the store was called from inside its own updater; an updater works on its "
                "arguments only"
            )


def _ordinal(entry: Entry) -> int:
    return entry.ordinal
