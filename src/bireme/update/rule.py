"""What a store does with a merged push: call the user's updater, or run an optimizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from bireme.types.keys import Key
from bireme.update.layout import Layout

__all__ = ("Rule", "Update", "Updater", "UpdaterRule")

Updater: TypeAlias = Callable[[Key, torch.Tensor, torch.Tensor], None]
"""``updater(key, merged, stored)`` changes ``stored`` in place."""


@dataclass(slots=True)
class Update:
    """One merged push."""

    key: Key
    """Whose value changes."""

    merged: torch.Tensor
    """The sum of what was pushed; dense or row-sparse; the rule may overwrite it."""

    stored: torch.Tensor
    """The stored value, changed in place, on the device of ``merged``."""


class Rule(Protocol):
    """Applies merged pushes to stored values."""

    def refresh(self) -> None:
        """Take up what changed outside since the last push; called once before the checks.

        Raises:
            ConfigError: The change cannot be taken up.
        """

    def check(self, key: Key, layout: Layout, row_sparse: bool) -> None:
        """Refuse a push that :meth:`apply` could not apply; changes nothing.

        Args:
            key: Whose push.
            layout: Layout of the stored value.
            row_sparse: Whether the merged value is row-sparse.

        Raises:
            ConfigError: The rule cannot take it.
        """

    def apply(self, updates: Sequence[Update]) -> None:
        """Change every stored value in place; on an error, none of them."""


class UpdaterRule:
    """Calls ``updater(key, merged, stored)`` for each key.

    Guarantees:
        When the updater raises, every stored value of the call is put back. That takes a copy of
        each value while the updater runs.

    Example:
        >>> def add(key, merged, stored):
        ...     stored += merged
        >>> stored = torch.ones(2)
        >>> UpdaterRule(add).apply([Update("w", torch.ones(2), stored)])
        >>> stored
        tensor([2., 2.])
    """

    def __init__(self, updater: Updater) -> None:
        self._updater = updater

    def refresh(self) -> None:
        """Do nothing: the updater is called as it is."""

    def check(self, key: Key, layout: Layout, row_sparse: bool) -> None:
        """Accept everything: only the updater knows what it can take."""

    def apply(self, updates: Sequence[Update]) -> None:
        """Call the updater for each update, in order."""
        with torch.no_grad():
            backups: list[torch.Tensor] = []
            try:
                for update in updates:
                    backups.append(update.stored.clone())
                    self._updater(update.key, update.merged, update.stored)
            except BaseException:
                for update, backup in zip(updates, backups, strict=False):
                    update.stored.copy_(backup)
                raise
