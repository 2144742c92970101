"""Memory on its way: who still needs a piece of it, and tensors that look into it.

Handles of the core (`payload` of calls, events and sends) are these objects. A handle is counted:
the core holds it until it says ``Release``, and every frame that carries it until it has left.
"""

import ctypes
import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

__all__ = ("Held", "Memory", "address_of", "bytes_of", "received_bytes", "tensor_over")


class Memory(Protocol):
    """A piece of memory that frames are sent from."""

    @property
    def view(self) -> memoryview:
        """The bytes."""

    def retain(self) -> None:
        """One more needs it."""

    def release(self) -> None:
        """One fewer needs it."""


class Held:
    """Counted memory that tells its owner when nobody needs it any more.

    Args:
        view: The bytes.
        freed: Called once, from any thread, when the last need is gone.

    Example:
        >>> held = Held(memoryview(bytearray(4)), lambda: print("free"))
        >>> held.retain(); held.release(); held.release()
        free
    """

    __slots__ = ("_count", "_freed", "_lock", "view")

    def __init__(self, view: memoryview, freed: Callable[[], None] | None = None) -> None:
        self.view = view
        self._freed = freed
        self._count = 1
        self._lock = threading.Lock()

    @property
    def shared(self) -> bool:
        """Whether anybody but its first holder needs it."""
        return self._count > 1

    def retain(self) -> None:
        """One more needs it."""
        with self._lock:
            self._count += 1

    def release(self) -> None:
        """One fewer needs it; the last one frees it."""
        with self._lock:
            self._count -= 1
            last = self._count == 0
        if last and self._freed is not None:
            self._freed()


def tensor_over(
    view: memoryview, dtype: torch.dtype, length: int, offset_bytes: int = 0
) -> torch.Tensor:
    r"""Return a tensor of ``length`` elements that looks into ``view``; no copy if aligned.

    Read it only while the memory is held, and never write through one over received memory:
    a transport may show the same bytes to others.

    Args:
        view: C-contiguous bytes.
        dtype: Element type of the tensor.
        length: Number of elements.
        offset_bytes: Where the first one starts.

    Example:
        >>> tensor_over(memoryview(bytearray(b"\x01\x02\x03")), torch.uint8, 2, 1)
        tensor([2, 3], dtype=torch.uint8)
    """
    if length == 0:
        return torch.empty(0, dtype=dtype)
    if view.readonly:
        view = _writable(view)
    if (address_of(view) + offset_bytes) % dtype.itemsize == 0:
        return torch.frombuffer(view, dtype=dtype, count=length, offset=offset_bytes)
    # Entries lie back to back, so one of another size may have left this one unaligned.
    num_bytes = length * dtype.itemsize
    loose = torch.frombuffer(view, dtype=torch.uint8, count=num_bytes, offset=offset_bytes)
    return loose.clone().view(dtype)


def bytes_of(flat: torch.Tensor) -> memoryview:
    """Return the memory of a flat contiguous CPU tensor; the view keeps it alive.

    Example:
        >>> bytes_of(torch.ones(2)).nbytes
        8
    """
    array = (ctypes.c_ubyte * flat.nbytes).from_address(flat.data_ptr())
    array.owner = flat  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def received_bytes(payload: object) -> memoryview:
    """Return the bytes of a payload that came with a message; none without a payload.

    Args:
        payload: As events carry it: a `bireme.transport.base.ReceivedFrame`, or ``None``.

    Example:
        >>> received_bytes(None).nbytes
        0
    """
    return memoryview(b"") if payload is None else payload.payload  # type: ignore[attr-defined]


def address_of(view: memoryview) -> int:
    """Return where the memory of a view lies."""
    if view.readonly:
        return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _writable(view: memoryview) -> memoryview:
    # torch warns of read-only memory although it is only read here.
    array = (ctypes.c_char * view.nbytes).from_address(address_of(view))
    return memoryview(array).cast("B")
