"""What a store keeps for one key, and the order of work on it."""

import threading

import torch

from bireme.kvstore.base import Key
from bireme.kvstore.reduce.rows import sum_rows, to_dense
from bireme.update.layout import Layout

__all__ = ("Entry", "Fence")


class Fence:
    """Makes work on a value wait for earlier work on it, across CUDA streams.

    Threads may use different streams; a lock orders what they enqueue, and this orders what the
    device does. On the CPU there is nothing to do.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: torch.cuda.Event | None = None

    def enter(self, device: torch.device) -> None:
        """Let the current stream of ``device`` wait for all recorded work."""
        if self._event is not None:
            torch.cuda.current_stream(device).wait_event(self._event)

    def leave(self, device: torch.device) -> None:
        """Record the work that was put on the current stream of ``device``."""
        if device.type != "cuda":
            self._event = None
            return
        # An event belongs to the device it was first recorded on, and a value may move.
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))


class Entry:
    """One key's value and what goes with it. Hold ``lock`` to touch anything but ``layout``.

    Args:
        key: The key.
        ordinal: Its place in the order of initialisation, in which locks are taken.
        layout: What the key keeps for life.
        value: The first value, owned by the entry from now on.
    """

    __slots__ = ("_merge", "fence", "key", "layout", "lock", "ordinal", "value")

    def __init__(self, key: Key, ordinal: int, layout: Layout, value: torch.Tensor) -> None:
        self.key = key
        self.ordinal = ordinal
        self.layout = layout
        self.value = value
        self.lock = threading.Lock()
        self.fence = Fence()
        self._merge: torch.Tensor | None = None

    def merge_buffer(self) -> torch.Tensor:
        """Return a dense tensor like the value, on its device, kept between pushes."""
        if self._merge is None or self._merge.device != self.value.device:
            self._merge = torch.empty(
                self.layout.shape, dtype=self.layout.dtype, device=self.value.device
            )
        return self._merge

    def overwrite(self, value: torch.Tensor) -> None:
        """Take over a copy of ``value``, which fits the layout."""
        value = value.detach()
        if self.layout.row_sparse:
            self.value = sum_rows([value], self.value.device)
        else:
            self.value.copy_(to_dense(value) if value.is_sparse else value)

    def move(self, device: torch.device) -> None:
        """Let the value live on ``device`` from now on."""
        if self.value.device != device:
            self.value = self.value.to(device)
