"""Verdicts in the making: what each rank is told after one event. PURE. Used by the coordinator."""

from collections.abc import Iterable

from bireme.core.negotiation.events import Send
from bireme.core.negotiation.messages import Item, Verdict

__all__ = ("Outbox",)


class Outbox:
    """Collects items for ranks and numbers the verdicts made of them.

    Example:
        >>> outbox = Outbox()
        >>> outbox.flush(), outbox.next_number
        ([], 1)
    """

    def __init__(self) -> None:
        self._number = 0
        self._items: dict[int, list[Item]] = {}

    @property
    def next_number(self) -> int:
        """Number of the verdict that the items put now belong to."""
        return self._number + 1

    @property
    def is_empty(self) -> bool:
        """Whether `flush` would return nothing."""
        return not self._items

    def put(self, ranks: Iterable[int], item: Item) -> None:
        """Tell ``ranks`` about ``item``, after what they were told before."""
        items = self._items
        for rank in ranks:
            if rank in items:
                items[rank].append(item)
            else:
                items[rank] = [item]

    def flush(self) -> list[Send]:
        """Return the verdicts; all of them carry one number."""
        if not self._items:
            return []
        self._number += 1
        number = self._number
        sends = [Send(rank, Verdict(number, items)) for rank, items in self._items.items()]
        self._items = {}
        return sends
