"""The keys that a store holds: adding new ones all or nothing, finding old ones."""

import threading
from collections.abc import Mapping, Sequence

import torch

from bireme.errors import StateError, UnknownKeyError
from bireme.kvstore.base import Key
from bireme.kvstore.entry import Entry
from bireme.kvstore.keys import key_kind
from bireme.kvstore.reduce.rows import sum_rows
from bireme.update.layout import Layout

__all__ = ("Table",)


class Table:
    """Entries by key, for any number of threads.

    Example:
        >>> import torch
        >>> table = Table()
        >>> table.add({"weight": torch.zeros(2)})
        >>> [entry.key for entry in table.find(["weight"])]
        ['weight']
    """

    def __init__(self) -> None:
        self._entries: Mapping[Key, Entry] = {}
        self._kind: type[int] | type[str] | None = None
        self._adding = threading.Lock()

    def add(self, first: Mapping[Key, torch.Tensor]) -> None:
        """Add keys with copies of their first values.

        Args:
            first: Values of keys of one kind; not empty.

        Raises:
            StateError: A key exists already.
            ConfigError: The keys are not of the store's kind.
        """
        layouts = {key: Layout.of(key, value) for key, value in first.items()}
        values = {key: _owned(value) for key, value in first.items()}
        with self._adding:
            kind = key_kind(list(first), self._kind)
            for key in first:
                if key in self._entries:
                    raise StateError(
                        f"key {key!r} is initialised already; push a new value instead"
                    )
            # A new dictionary, so that readers need no lock.
            entries = dict(self._entries)
            for key, value in values.items():
                entries[key] = Entry(key, len(entries), layouts[key], value)
            self._kind, self._entries = kind, entries

    def find(self, keys: Sequence[Key]) -> list[Entry]:
        """Return the entries of ``keys``, each once, in order of first mention.

        Raises:
            UnknownKeyError: A key was never initialised.
            ConfigError: The keys are not of the store's kind.
        """
        if not keys:
            return []
        key_kind(keys, self._kind)
        entries = self._entries
        found = {}
        for key in keys:
            entry = entries.get(key)
            if entry is None:
                raise UnknownKeyError(
                    f"key {key!r} was never initialised; call init({key!r}, value) first"
                )
            found[key] = entry
        return list(found.values())

    def all(self) -> list[Entry]:
        """Return every entry, in the order of initialisation."""
        return list(self._entries.values())

    def clear(self) -> None:
        """Forget every key."""
        with self._adding:
            self._entries = {}


def _owned(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    if value.layout is torch.strided:
        return value.clone(memory_format=torch.contiguous_format)
    return sum_rows([value], value.device)
