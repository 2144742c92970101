"""The sending half of a socket link: any thread sends, at most one writes. Called by `SocketLink`.

A thread that sends writes as much as the socket takes and leaves the rest to the thread that polls.
It writes without holding the lock, so the others only queue and go on.
"""

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum

from bireme.errors import PeerLost
from bireme.transport.base import AT_ONCE_BYTES, Frame, Memory
from bireme.transport.outbox import Outbox
from bireme.transport.seal import Seal
from bireme.transport.streams import WOULD_BLOCK, Piece, Stream

__all__ = ("Sender",)

_BATCH_BYTES = 128 << 10
"""Small frames leave together up to here; more would let a large batch delay an urgent frame."""

_BATCH_PIECES = 256

_WRITES_PER_TURN = 16
"""After so many writes a thread leaves the rest to the poller, lest it serve others for ever."""

Callback = Callable[[], None]


class _State(Enum):
    OPEN = 1
    ENDING = 2
    """What is queued leaves, then the goodbye, then nothing."""
    HALTED = 3
    """Nothing more leaves; the poller has yet to stop watching the socket."""
    STOPPED = 4
    """The socket may be closed."""


_OPEN = _State.OPEN
_OVER = (_State.HALTED, _State.STOPPED)


class Sender:
    """Queues frames and writes them.

    Args:
        stream: Where to. The sender closes it, once `stop` was called and no thread writes.
        window_bytes: Payload that the peer lets this side have under way.
        seal: Seals the heads; None if they carry no seal.
        on_blocked: Called when the socket is full: the poller calls `writable` once it is not.
        on_failed: Called with the reason when the connection breaks, as `on_blocked` with no lock
            held.
    """

    def __init__(
        self,
        stream: Stream,
        window_bytes: int,
        seal: Seal | None,
        *,
        on_blocked: Callback,
        on_failed: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._seal = seal
        self._on_blocked = on_blocked
        self._on_failed = on_failed
        self._lock = threading.Lock()
        self._state = _State.OPEN
        self._reason = ""
        self.outbox = Outbox(window_bytes)
        self._own_frames: deque[bytes] = deque()
        self._goodbye: bytes | None = None
        self._ended = False
        self.blocked = False
        # The thread that set _writing owns the pieces under way, and whom to tell when they left.
        self._writing = False
        self._pieces: list[Piece] = []
        self._descriptors: list[int] = []
        self._callbacks: list[Callback] = []
        self.num_sent = 0
        self.sent_bytes = 0

    def send(self, frame: Frame, priority: int, on_sent: Callback | None) -> None:
        """Queue a frame and write as much as the socket takes.

        Raises:
            PeerLost: `end` or `stop` has been called.
        """
        with self._lock:
            if self._state is not _OPEN:
                raise PeerLost(self._reason)
            if self._writing or self.blocked:
                self.outbox.push(frame, priority, on_sent)
                return
            self._writing = True
            if self._own_frames or not self.outbox.may_pass(frame):
                self.outbox.push(frame, priority, on_sent)
            else:
                self.num_sent += 1
                self.sent_bytes += len(frame.head) + frame.payload_bytes
                self._add_frame(self._pieces, frame, on_sent)
        self._write()

    def send_at_once(
        self, head: bytes, payload: list[memoryview], payload_bytes: int, memory: Memory
    ) -> bool:
        """See `Link.send_at_once`."""
        with self._lock:
            if not self._is_idle(payload_bytes):
                return False
            self.outbox.window.outstanding_bytes += payload_bytes
            self.num_sent += 1
            size_bytes = len(head) + payload_bytes
            self.sent_bytes += size_bytes
            pieces: list[Piece] = [head]
            if self._seal is not None:
                pieces.append(self._seal.seal(head))
                size_bytes += len(pieces[1])
            pieces += payload
            self._writing = True
        try:
            num_bytes = self._stream.send(pieces)
        except OSError as error:
            self._pause(f"the connection broke: {error}")
            return True
        if num_bytes != size_bytes:
            memory.retain()
            self._callbacks.append(memory.release)
            self._pieces = pieces
            if num_bytes != WOULD_BLOCK:
                self._advance(num_bytes)
        with self._lock:
            waits = self._pieces or self._own_frames or self.outbox.waiting
            if not waits and self._state is _OPEN:
                self._writing = False
                return True
        self._write()
        return True

    def _is_idle(self, payload_bytes: int) -> bool:
        """Return whether a small frame may leave now, before any other. The lock is held."""
        window = self.outbox.window
        return (
            self._state is _OPEN
            and not (self._writing or self.blocked or self._own_frames or self.outbox.waiting)
            and payload_bytes <= min(AT_ONCE_BYTES, window.window_bytes - window.outstanding_bytes)
        )

    def send_own(self, head: bytes) -> None:
        """Send a frame of the transport's own, ahead of the queue; drop it if nothing may leave."""
        with self._lock:
            said_goodbye = self._state is _State.ENDING and self._goodbye is None
            if said_goodbye or self._state in _OVER:
                return
            self._own_frames.append(head)
            writes = self._may_write()
        if writes:
            self._write()

    def add_own(self, head: bytes) -> None:
        """Have a frame of the transport's own leave ahead of the next one."""
        with self._lock:
            if self._state is _State.OPEN:
                self._own_frames.append(head)

    @property
    def said_goodbye(self) -> bool:
        """Whether everything has left, the goodbye included."""
        with self._lock:
            return self._ended

    def credit(self, size_bytes: int) -> None:
        """Go on with credit that came back.

        Raises:
            RemoteProtocolError: It is more than what is under way.
        """
        with self._lock:
            self.outbox.window.returned(size_bytes)
            writes = bool(len(self.outbox)) and self._may_write()
        if writes:
            self._write()

    def writable(self) -> None:
        """Go on after `on_blocked`."""
        with self._lock:
            self.blocked = False
            writes = self._may_write()
        if writes:
            self._write()

    def end(self, goodbye: bytes, reason: str) -> None:
        """Take no more frames; send what is queued, then ``goodbye``, then end the stream."""
        with self._lock:
            if self._state is not _State.OPEN:
                return
            self._state = _State.ENDING
            self._reason = reason
            self._goodbye = goodbye
            writes = self._may_write()
        if writes:
            self._write()

    def halt(self, reason: str) -> None:
        """Let nothing more leave; `stop` follows."""
        with self._lock:
            if self._state is not _State.STOPPED:
                self._state = _State.HALTED
                self._reason = reason

    def stop(self, reason: str) -> None:
        """Drop what is queued and close the stream, now or when the writing thread is done."""
        with self._lock:
            self._state = _State.STOPPED
            self._reason = reason
            self._own_frames.clear()
            if self._writing:
                return
        self._cleanup()

    def _cleanup(self) -> None:
        """Close the stream and tell whose frames were dropped. `stop` was called, nobody writes."""
        with self._lock:
            callbacks = self._dropped() + self._callbacks
            callbacks += [item.on_sent for item in self.outbox.drain() if item.on_sent is not None]
            self._callbacks, self._pieces = [], []
        self._stream.close()
        for callback in callbacks:
            callback()

    def _dropped(self) -> list[Callback]:
        """Return whom to tell of frames that the peer may have, or not. The lock is held."""
        return []

    def _may_write(self) -> bool:
        """Become the writing thread, if there is none. The lock is held."""
        if self._writing or self.blocked or self._state in _OVER:
            return False
        self._writing = True
        return True

    def _write(self) -> None:
        """Write until nothing is left or the socket is full. Called by the writing thread."""
        failed: str | None = None
        try:
            for _ in range(_WRITES_PER_TURN):
                if not self._pieces and not self._next_batch():
                    return
                num_bytes = self._stream.send(self._pieces, self._descriptors)
                if num_bytes == WOULD_BLOCK:
                    break
                if self._descriptors:
                    self._descriptors.clear()
                if num_bytes != sum(map(len, self._pieces)):
                    self._advance(num_bytes)
                    continue
                self._pieces.clear()
                if self._callbacks:
                    self._tell()
        except OSError as error:
            failed = f"the connection broke: {error}"
        self._pause(failed)

    def _pause(self, failed: str | None) -> None:
        """Stop being the writing thread: the socket is full, others' turn has come, or it broke."""
        with self._lock:
            self._writing = False
            self.blocked = True
            stopped = self._state is _State.STOPPED
            if failed is not None and not stopped:
                self._state = _State.HALTED
                self._reason = failed
        if stopped:
            self._cleanup()
        elif failed is None:
            self._on_blocked()
        else:
            self._on_failed(failed)

    def _next_batch(self) -> bool:
        """Take what leaves next; without anything, stop being the writing thread."""
        ended = False
        with self._lock:
            pieces = self._pieces
            if (
                not pieces
                and self._state is _OPEN
                and not (self._own_frames or self.outbox.waiting)
            ):
                self._writing = False
                return False
            if self._state not in _OVER:
                if self._own_frames or len(self.outbox):
                    self._fill(pieces)
                if not pieces and self._state is _State.ENDING and not len(self.outbox):
                    ended = self._ended = self._goodbye is None
                    if self._goodbye is not None:
                        self._add(pieces, self._goodbye)
                        self._goodbye = None
            if not pieces:
                self._writing = False
            stopped = self._state is _State.STOPPED
        if stopped:
            self._cleanup()
        elif ended:
            self._stream.end_sending()
        return bool(pieces)

    def _fill(self, pieces: list[Piece]) -> None:
        """Take frames up to the size of a batch. The lock is held."""
        while self._own_frames:
            self._add(pieces, self._own_frames.popleft())
        size_bytes = 0
        while size_bytes < _BATCH_BYTES and len(pieces) < _BATCH_PIECES:
            waiting = self.outbox.pop()
            if waiting is None:
                break
            size_bytes += self._count(waiting.frame)
            self._add_frame(pieces, waiting.frame, waiting.on_sent)

    def _count(self, frame: Frame) -> int:
        size_bytes = len(frame.head) + frame.payload_bytes
        self.num_sent += 1
        self.sent_bytes += size_bytes
        return size_bytes

    def _add(self, pieces: list[Piece], head: bytes) -> None:
        """Append a head and its seal. The lock is held: seals are numbered."""
        pieces.append(head)
        if self._seal is not None:
            pieces.append(self._seal.seal(head))

    def _add_frame(self, pieces: list[Piece], frame: Frame, on_sent: Callback | None) -> None:
        """Append a frame and whom to tell when it has left. The lock is held."""
        pieces.append(frame.head)
        if self._seal is not None:
            pieces.append(self._seal.seal(frame.head))
        pieces += frame.payload
        if on_sent is not None:
            self._callbacks.append(on_sent)

    def _advance(self, num_bytes: int) -> None:
        """Forget what has left, which is not all."""
        pieces = self._pieces
        num_whole = 0
        for piece in pieces:
            if num_bytes < len(piece):
                break
            num_bytes -= len(piece)
            num_whole += 1
        del pieces[:num_whole]
        if num_bytes:
            pieces[0] = memoryview(pieces[0])[num_bytes:]

    def _tell(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
