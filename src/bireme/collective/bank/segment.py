"""The memory that the ranks of one machine share: where each rank writes what.

::

    line of rank 0   step, state, process, asleep | labels | gate | cores | offers | note
    line of rank 1   ...
    areas            rank 0 even, rank 0 odd, rank 1 even, rank 1 odd, ...

There are labels and offers for even and for odd steps.
Every byte has one writer, the rank whose line or area it lies in; so no atomic instructions are
needed. The exception is the gate in the line of rank 0 (see `steps.py`): whoever writes it writes
the same. It is an anonymous memory file: it has no name anywhere, in ``/dev/shm`` or elsewhere, and
vanishes with the last process that maps it, however it dies.
Called by `meeting.py`, which makes or receives the file, and by `steps.py`.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from bireme.collective.bank.cores import core_set
from bireme.errors import RemoteProtocolError

__all__ = ("LABEL_BYTES", "MOST_OFFERS", "Layout", "Segment", "State", "make_file")

LABEL_BYTES = 64
MOST_OFFERS = 31
"""How many more operations a rank can offer with one."""
_LINE_BYTES = 1024
_LINE_WORDS = _LINE_BYTES // 4
_GATE_AT = 64 + 2 * LABEL_BYTES
_CORES_AT = _GATE_AT + 64
_CORES_BYTES = 256
_OFFERS_AT = _CORES_AT + _CORES_BYTES
_OFFERS_WORDS = 32
_NOTE_AT = _OFFERS_AT + 2 * 4 * _OFFERS_WORDS
_NOTE_BYTES = _LINE_BYTES - _NOTE_AT
_PAGE_BYTES = 4096
_LOCK = struct.Struct("@hhqqi4x")
"""C's ``struct flock`` on 64-bit Linux: type, whence, start, length, process."""


class State(IntEnum):
    """How a rank is, as it says itself; that it is dead it cannot say."""

    ABSENT = 0
    HERE = 1
    LEFT = 2
    LOST_SOMEBODY = 3
    GAVE_UP = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of a segment.

    Example:
        >>> Layout(num_ranks=2, area_bytes=8192).size_bytes
        36864
    """

    num_ranks: int
    area_bytes: int
    """Of one rank's area for even or for odd steps; a multiple of the page size."""

    @property
    def header_bytes(self) -> int:
        """Size of all lines."""
        return -(-self.num_ranks * _LINE_BYTES // _PAGE_BYTES) * _PAGE_BYTES

    @property
    def size_bytes(self) -> int:
        """Size of the whole segment."""
        return self.header_bytes + 2 * self.num_ranks * self.area_bytes


def make_file(layout: Layout) -> int:
    """Return the descriptor of a new memory file, whose size is sealed."""
    descriptor = os.memfd_create("bireme-bank", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, layout.size_bytes)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Segment:
    """A memory file, mapped, seen by one of its ranks.

    A rank holds a record lock on one byte of the file while it lives. The kernel drops the lock
    with the process; forked children do not inherit it; and everybody who has the file can ask
    for it, without seeing the process (it may be in another container).

    Args:
        descriptor: The memory file; belongs to the segment from here on, also when this raises.
        layout: Its sizes, the same for every rank.
        rank: Whose view this is.

    Raises:
        RemoteProtocolError: The file is not what the layout says.
        OSError: It cannot be mapped or locked.
    """

    def __init__(self, descriptor: int, layout: Layout, rank: int) -> None:
        self.layout = layout
        self.rank = rank
        self.process = os.getpid()
        try:
            if os.fstat(descriptor).st_size != layout.size_bytes:
                raise RemoteProtocolError("a shared memory file of another size than announced")
            if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                raise RemoteProtocolError("a shared memory file that could shrink while in use")
            self._memory = mmap.mmap(descriptor, layout.size_bytes)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self.view = memoryview(self._memory)
        self.words = self.view[: layout.header_bytes].cast("I")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        # Before anybody is told that this rank has come, so that none takes it for one that went.
        self.words[self.process_word(rank)] = _process_mark()
        start = rank * _LINE_BYTES + _CORES_AT
        self.view[start : start + _CORES_BYTES] = core_set(_CORES_BYTES)
        self.words[self.state_word(rank)] = State.HERE

    def open_again(self) -> int:
        """Return another descriptor of the memory file, whose `flock` is its own.

        Close it after this segment: it takes the record lock along.
        """
        return os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDWR | os.O_CLOEXEC)

    def step_word(self, rank: int) -> int:
        """Return where in `words` a rank says which step it has reached."""
        return rank * _LINE_WORDS

    def state_word(self, rank: int) -> int:
        """Return where in `words` a rank says how it is."""
        return rank * _LINE_WORDS + 1

    def process_word(self, rank: int) -> int:
        """Return where in `words` a rank says which process it belongs to."""
        return rank * _LINE_WORDS + 2

    def asleep_word(self, rank: int) -> int:
        """Return where in `words` a rank says that it sleeps, or is about to."""
        return rank * _LINE_WORDS + 3

    @property
    def gate_word(self) -> int:
        """Where in `words` it is said which step all have ended; ranks sleep at it."""
        return _GATE_AT // 4

    def offers_word(self, rank: int, odd: int) -> int:
        """Return where in `words` a rank says how many operations it offers; their sizes follow."""
        return rank * _LINE_WORDS + _OFFERS_AT // 4 + odd * _OFFERS_WORDS

    def has_core_each(self) -> bool:
        """Return whether the ranks' cores are as many as they, and no two ranks share a process."""
        ranks = range(self.layout.num_ranks)
        if len({self.words[self.process_word(rank)] for rank in ranks}) < len(ranks):
            return False
        cores = 0
        for rank in ranks:
            start = rank * _LINE_BYTES + _CORES_AT
            cores |= int.from_bytes(self.view[start : start + _CORES_BYTES], "little")
        return cores.bit_count() >= len(ranks)

    def label(self, rank: int, odd: int) -> memoryview:
        """Return where a rank says what it does in even or in odd steps."""
        start = rank * _LINE_BYTES + 64 + odd * LABEL_BYTES
        return self.view[start : start + LABEL_BYTES]

    def area(self, rank: int, odd: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        """Return a rank's area for even or for odd steps."""
        start = self.layout.header_bytes + (2 * rank + odd) * self.layout.area_bytes
        return np.frombuffer(self._memory, np.uint8, self.layout.area_bytes, start)

    def write_note(self, text: str) -> None:
        """Leave a text for the others; it is cut where the line ends."""
        note = text.encode()[: _NOTE_BYTES - 2].decode(errors="ignore").encode()
        start = self.rank * _LINE_BYTES + _NOTE_AT
        self.view[start : start + 2 + len(note)] = struct.pack("<H", len(note)) + note

    def read_note(self, rank: int) -> str:
        """Return the text that a rank left; empty if it left none."""
        start = rank * _LINE_BYTES + _NOTE_AT
        (length,) = struct.unpack_from("<H", self.view, start)
        length = min(length, _NOTE_BYTES - 2)
        return bytes(self.view[start + 2 : start + 2 + length]).decode(errors="replace")

    def is_alive(self, rank: int) -> bool:
        """Return whether the process of a rank lives and has not closed its segment."""
        # Locks do not show between ranks of one process.
        if self.words[self.process_word(rank)] == _process_mark():
            return True
        request = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, rank, 1, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, request)
        kind: int = _LOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK

    def close(self) -> None:
        """Drop the lock and the views made here; the memory goes with the last array of it."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        self.words.release()
        with contextlib.suppress(BufferError):
            self.view.release()
            self._memory.close()
        os.close(descriptor)


def _process_mark() -> int:
    """Return a number that tells this process from others, in whatever container they are."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return zlib.crc32(f"{space}:{os.getpid()}".encode())
