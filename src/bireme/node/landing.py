"""Where the values of a whole exchange go: the memory of many tensors, bunch by bunch."""

from collections.abc import Iterator, Mapping, Sequence

import torch

from bireme.core.bunches import Bunch
from bireme.node.memory import address_of
from bireme.node.parcels import raw_view
from bireme.node.tickets import Place, Slot

__all__ = ("Landing",)


class Landing(Mapping[Slot, Place]):
    """Takes values where a :class:`~bireme.node.tickets.Ticket` takes places.

    Args:
        targets: By bunch, the memory of each slot in order.
        owners: What the memory belongs to; kept as long as the landing is.
    """

    def __init__(
        self, targets: Mapping[Bunch, Sequence[memoryview]], owners: Sequence[torch.Tensor]
    ) -> None:
        self._targets = targets
        self.owners = owners
        self._places: dict[Slot, Place] | None = None
        self._singles: dict[Slot, memoryview] | None = None
        self._received: dict[Slot, memoryview] = {}

    @property
    def bunches(self) -> tuple[Bunch, ...]:
        """All bunches that it takes."""
        return tuple(self._targets)

    def take(self, bunch: Bunch, payload: memoryview) -> None:
        """Write the values of all slots of a bunch, unless they were received in place."""
        views = self._targets[bunch]
        if len(views) == 1:
            received = self._received.pop(bunch.slots[0], None)
            if received is None or payload.obj is not received.obj:
                views[0][:] = payload
            return
        start = 0
        for view in views:
            end = start + len(view)
            view[:] = payload[start:end]
            start = end

    def direct(self, slot: Slot, size_bytes: int) -> memoryview | None:
        """Return where the value of a slot may be received that comes in a message of its own.

        The view keeps the tensors: the value may still be on its way when its call has failed.
        """
        if self._singles is None:
            self._singles = {
                bunch.slots[0]: views[0]
                for bunch, views in self._targets.items()
                if len(views) == 1
            }
        view = self._singles.get(slot)
        if view is None or len(view) != size_bytes:
            return None
        target = raw_view(address_of(view), size_bytes, self.owners)
        self._received[slot] = target
        return target

    def __getitem__(self, slot: Slot) -> Place:
        """Return the place of one slot, for values that come one by one."""
        return self._by_slot()[slot]

    def __iter__(self) -> Iterator[Slot]:
        """Yield the slots."""
        return iter(self._by_slot())

    def __len__(self) -> int:
        """Return how many slots there are."""
        return len(self._by_slot())

    def _by_slot(self) -> dict[Slot, Place]:
        if self._places is None:
            self._places = {
                slot: Place([torch.frombuffer(view, dtype=torch.uint8)])
                for bunch, views in self._targets.items()
                for slot, view in zip(bunch.slots, views, strict=True)
            }
        return self._places
