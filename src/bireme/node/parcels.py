"""What a worker sends of one bunch: the memory of many tensors as one handle.

Nothing is copied together: the pieces leave one after another, from where the tensors lie. Made by
stores, sent by :mod:`bireme.node.runtime`.
"""

import ctypes
import threading
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from bireme.errors import LocalProtocolError
from bireme.node.memory import Held

__all__ = ("Parcel", "cut_parcel", "raw_view")


class Parcel:
    """Counted pieces of memory, as :class:`~bireme.node.memory.Held` is for one.

    Args:
        views: Bytes of each slot, in order, or of all slots in one; none is empty.
        size_bytes: Of all together.
        owners: What the memory belongs to; kept as long as the parcel is needed.
    """

    __slots__ = ("_count", "_lock", "_owners", "size_bytes", "views")

    def __init__(self, views: list[memoryview], size_bytes: int, owners: object) -> None:
        self.views = views
        self.size_bytes = size_bytes
        self._owners = owners
        self._count = 1
        self._lock = threading.Lock()

    def retain(self) -> None:
        """One more needs it."""
        with self._lock:
            self._count += 1

    def release(self) -> None:
        """One fewer needs it."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self.views, self._owners = [], None


def cut_parcel(handle: object, sizes: Sequence[int]) -> list[Held]:
    """Return a handle for each piece; the parcel is held until the last is released.

    Raises:
        LocalProtocolError: It is no parcel of pieces of these sizes.
    """
    if not isinstance(handle, Parcel):
        raise LocalProtocolError(f"{handle!r} is no parcel of pieces of {list(sizes)} bytes")
    views = handle.views
    if len(views) == 1 < len(sizes):
        ends = list(accumulate(sizes))
        views = [views[0][end - size : end] for end, size in zip(ends, sizes, strict=True)]
    if [view.nbytes for view in views] != list(sizes) or sum(sizes) != handle.size_bytes:
        raise LocalProtocolError(f"{handle!r} does not consist of pieces of {list(sizes)} bytes")
    parts = [Held(view, handle.release) for view in views]
    for _ in parts[1:]:
        handle.retain()
    return parts


def raw_view(address: int, size_bytes: int, owner: object = None) -> memoryview:
    """Return a view of memory that somebody else keeps alive.

    Args:
        address: Where it begins.
        size_bytes: Its size.
        owner: What the view keeps alive, if that is what the memory belongs to.

    Example:
        >>> memory = ctypes.create_string_buffer(b"abc")
        >>> bytes(raw_view(ctypes.addressof(memory), 3))
        b'abc'
    """
    array = _array(size_bytes).from_address(address)
    if owner is not None:
        array.owner = owner
    return memoryview(array).cast("B")


@lru_cache(maxsize=4096)
def _array(size_bytes: int) -> Any:
    return ctypes.c_ubyte * size_bytes
