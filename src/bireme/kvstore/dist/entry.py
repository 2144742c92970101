"""What a worker knows of one key of a distributed store: where its slots live, and its memory."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bireme.kvstore.base import Key
from bireme.node.memory import Held, bytes_of
from bireme.node.tickets import Slot
from bireme.update.layout import Layout

if TYPE_CHECKING:
    from bireme.compress.base import State

__all__ = ("DistEntry", "SlotSpan")


@dataclass(frozen=True, slots=True)
class SlotSpan:
    """A run of a key's flattened value: one slot on one server."""

    slot: Slot
    offset: int
    """First element."""
    length: int
    """Elements."""
    server: int
    """Rank of the server that holds it."""


class DistEntry:
    """One key.

    Args:
        key: The user's name for it.
        layout: Its shape, dtype and sparsity, for life.
        spans: Its slots, which cover the value in order.
    """

    def __init__(self, key: Key, layout: Layout, spans: Sequence[SlotSpan]) -> None:
        self.key = key
        self.layout = layout
        self.spans = tuple(spans)
        self.residuals: list[State] | None = None
        """The compression residual of each slot."""
        self.compressing = threading.Lock()
        """Held while ``residuals`` change."""
        self.lock = threading.Lock()
        self._free: list[torch.Tensor] = []

    @property
    def row_length(self) -> int:
        """Elements of one row; 1 for vectors and scalars."""
        shape = self.layout.shape
        return shape[1:].numel() if len(shape) > 1 else 1

    @property
    def has_whole_rows(self) -> bool:
        """Whether no row lies on two slots."""
        width = self.row_length
        return not width or all(
            span.offset % width == 0 and span.length % width == 0 for span in self.spans
        )

    def staging(self) -> torch.Tensor:
        """Return memory for one value, flat, on the CPU, to ``hand_out`` or ``put_back``."""
        with self.lock:
            if self._free:
                return self._free.pop()
        return torch.empty(self.layout.shape.numel(), dtype=self.layout.dtype)

    def put_back(self, staged: torch.Tensor) -> None:
        """Take back memory of ``staging``; one piece is kept for the next push."""
        with self.lock:
            if not self._free:
                self._free.append(staged)

    def hand_out(self, staged: torch.Tensor) -> list[Held]:
        """Return a handle for each slot's part of ``staged``, which is reused after the last."""
        remaining = len(self.spans)

        def freed() -> None:
            nonlocal remaining
            with self.lock:
                remaining -= 1
                last = remaining == 0
            if last:
                self.put_back(staged)

        return [Held(view, freed) for view in self.cut(staged)]

    def cut(self, flat: torch.Tensor) -> list[memoryview]:
        """Return the bytes of each slot's part of a flat contiguous CPU tensor."""
        if len(self.spans) == 1:
            return [bytes_of(flat)]
        return [bytes_of(flat[span.offset : span.offset + span.length]) for span in self.spans]
