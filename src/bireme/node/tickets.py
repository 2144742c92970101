"""Calls under way: what each waits for, and where its values go."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from bireme.node.memory import address_of, bytes_of, tensor_over

if TYPE_CHECKING:
    from bireme.errors import BiremeError

__all__ = ("Place", "Slot", "Ticket")

Slot = tuple[int, int]
"""``(key_id, index)``."""


class Place:
    """Where the bytes of one slot's value go.

    Args:
        targets: One-dimensional contiguous CPU tensors that all get the value.
    """

    __slots__ = ("address", "targets")

    def __init__(self, targets: Sequence[torch.Tensor]) -> None:
        self.targets = targets
        self.address = targets[0].data_ptr()

    def direct(self, size_bytes: int) -> memoryview | None:
        """Return memory to receive ``size_bytes`` into, when the value goes to one place only."""
        target = self.targets[0]
        if len(self.targets) > 1 or target.nbytes != size_bytes or size_bytes == 0:
            return None
        return bytes_of(target)

    def write(self, payload: memoryview, offset_bytes: int) -> None:
        """Copy the value out of ``payload`` unless it was received in place."""
        for target in self.targets:
            memory = bytes_of(target)
            source = payload[offset_bytes : offset_bytes + memory.nbytes]
            if memory and address_of(source) != target.data_ptr():
                memory[:] = source

    def write_cast(self, payload: memoryview, offset_bytes: int, element: torch.dtype) -> None:
        """Write a float32 value that came in another type, whose numbers are exact in it."""
        for target in self.targets:
            numbers = target.view(torch.float32)
            numbers.copy_(tensor_over(payload, element, len(numbers), offset_bytes))


class Ticket:
    """One call: done or not, its result or its error.

    Args:
        places: Where the value of each slot goes.
        on_done: Called once when it is done, by the thread that drives the loop.
    """

    __slots__ = ("done", "error", "on_done", "places", "result")

    def __init__(
        self,
        places: Mapping[Slot, Place] | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> None:
        self.places = {} if places is None else places
        self.on_done = on_done
        self.done = False
        self.result: object = None
        self.error: BiremeError | None = None

    def value(self) -> object:
        """Return the result.

        Raises:
            BiremeError: What the call failed with.
        """
        if self.error is not None:
            raise self.error
        return self.result
