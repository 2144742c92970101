"""Memory for the sums of one message's slots, side by side, so that they leave in one piece.

A bundle of small slots comes as one message. When their sums lie behind one another as well, the
answer is one run of memory: it goes to every worker without being gathered. Called by
:mod:`bireme.node.values` for each contribution that begins a sum.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from bireme.node.memory import Held, Memory
from bireme.transport.base import Buffer

__all__ = ("Part", "Sheets", "joined")

_WASTE = 0.1


class Part(Held):
    """A part of a sheet.

    Args:
        sheet: The whole sheet.
        start: Where in it the part begins.
        size_bytes: Its size.
        freed: As of ``Held``.
    """

    __slots__ = ("sheet", "start")

    def __init__(
        self, sheet: memoryview, start: int, size_bytes: int, freed: Callable[[], None]
    ) -> None:
        super().__init__(sheet[start : start + size_bytes], freed)
        self.sheet = sheet
        self.start = start


class _Sheet:
    """Memory as large as a message's payload, and how much of it is in use."""

    __slots__ = ("buffer", "used_bytes")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.used_bytes = 0


class Sheets:
    """Gives each entry of a message memory at the place that it has in the payload.

    Args:
        allocate: Makes memory that frames can be sent from.

    Guarantees:
        A sheet is begun only while less than a tenth of the others' memory lies idle, because
        parts of them are gone or were never asked for. Otherwise each entry gets its own memory.

    Example:
        >>> from bireme.transport.pool import BufferPool, PooledBuffer
        >>> pool = BufferPool(1 << 20)
        >>> sheets = Sheets(lambda size_bytes: PooledBuffer(pool, size_bytes))
        >>> one, two = (sheets.part("message", 128, start, 64) for start in (0, 64))
        >>> [len(view) for view in joined([one, two])]
        [128]
    """

    def __init__(self, allocate: Callable[[int], Buffer]) -> None:
        self._allocate = allocate
        self._payload: object = None
        self._sheet: _Sheet | None = None
        self._lock = threading.Lock()
        self._total_bytes = 0
        self._used_bytes = 0

    def part(self, payload: object, payload_bytes: int, start: int, size_bytes: int) -> Held:
        """Return memory for one entry of a message.

        Args:
            payload: What is the same for all entries of a message, and for no other's.
            payload_bytes: Of the whole message.
            start: Where the entry begins in the payload.
            size_bytes: Of the entry.
        """
        if size_bytes == payload_bytes:
            return self._alone(size_bytes)
        with self._lock:
            if payload is not self._payload:
                self._payload = payload
                self._turn_over(payload_bytes)
            sheet = self._sheet
            if sheet is None:
                return self._alone(size_bytes)
            sheet.used_bytes += size_bytes
            self._used_bytes += size_bytes
        return Part(sheet.buffer.view, start, size_bytes, partial(self._freed, sheet, size_bytes))

    def _turn_over(self, payload_bytes: int) -> None:
        """Begin a sheet, unless much of the others lies idle. The lock is held."""
        old, self._sheet = self._sheet, None
        if old is not None and old.used_bytes == 0:
            self._drop(old)
        if self._total_bytes - self._used_bytes <= _WASTE * self._used_bytes:
            self._sheet = _Sheet(self._allocate(payload_bytes))
            self._total_bytes += payload_bytes

    def _alone(self, size_bytes: int) -> Held:
        buffer = self._allocate(max(1, size_bytes))
        return Held(buffer.view[:size_bytes], buffer.release)

    def _freed(self, sheet: _Sheet, size_bytes: int) -> None:
        # By the thread that has sent the part, which may be another.
        with self._lock:
            sheet.used_bytes -= size_bytes
            self._used_bytes -= size_bytes
            if sheet.used_bytes == 0 and sheet is not self._sheet:
                self._drop(sheet)

    def _drop(self, sheet: _Sheet) -> None:
        self._total_bytes -= sheet.buffer.view.nbytes
        sheet.buffer.release()


def joined(pieces: Sequence[Memory]) -> list[memoryview]:
    """Return the views of ``pieces``; neighbours in a sheet as one."""
    views: list[memoryview] = []
    sheet, first, end = None, 0, 0
    for piece in pieces:
        if type(piece) is not Part:
            sheet = None
            views.append(piece.view)
        elif piece.sheet is sheet and piece.start == end:
            end += piece.view.nbytes
            views[-1] = sheet[first:end]
        else:
            sheet, first = piece.sheet, piece.start
            end = first + piece.view.nbytes
            views.append(piece.view)
    return views
