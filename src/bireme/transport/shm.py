"""Links within one machine whose payloads lie in shared memory; only notices cross the socket.

The sender copies a payload once into its arena, or not at all when it was written to memory from
`Transport.allocate`. The receiver reads it there, and tells which blocks it has released together
with the credit. What does not fit the arena, and what is small, goes through the socket as in any
link: so nothing ever waits for memory. Called by `SocketTransport`.
"""

import struct
from array import array
from collections.abc import Callable
from functools import partial

from bireme.errors import RemoteProtocolError
from bireme.transport.arena import Arena, Block, Segment, map_segment
from bireme.transport.auth import Session
from bireme.transport.base import AT_ONCE_BYTES, Frame, ReceivedFrame
from bireme.transport.framing import TransportKind, sink_target, transport_head
from bireme.transport.link import LinkOwner, SocketLink
from bireme.transport.seal import Seal
from bireme.transport.sender import Sender
from bireme.transport.streams import DescriptorStream, Piece, Stream
from bireme.wire.header import (
    HEADER_BYTES,
    check_payload,
    read_header,
)

__all__ = ("SharedLink", "SharedSender")

_SEGMENT = struct.Struct("<IQ")
_SHARED = struct.Struct("<QIBQQ")
"""Number of the block, number of its segment, whether to return it at once, offset, size."""
_RETURNED = struct.Struct("<Q")

Callback = Callable[[], None]


class SharedSender(Sender):
    """A `Sender` that puts payloads into an arena.

    Args:
        arena: Shared by the links of a transport.
        on_orphaned: Called at the end with the blocks that the peer has not returned, if any: it
            may still read them.
    """

    def __init__(
        self,
        stream: Stream,
        window_bytes: int,
        seal: Seal | None,
        *,
        on_blocked: Callback,
        on_failed: Callable[[str], None],
        arena: Arena,
        on_orphaned: Callable[[list[Block]], None],
    ) -> None:
        super().__init__(stream, window_bytes, seal, on_blocked=on_blocked, on_failed=on_failed)
        self._arena = arena
        self._on_orphaned = on_orphaned
        self._announced: set[int] = set()
        self._number = 0
        self._under_way: dict[int, tuple[Block, Callback | None]] = {}

    def returned(self, numbers: list[int]) -> None:
        """Take back blocks that the peer has released.

        Raises:
            RemoteProtocolError: One of them is not under way.
        """
        with self._lock:
            try:
                found = [self._under_way.pop(number) for number in numbers]
            except KeyError as error:
                raise RemoteProtocolError(
                    f"the peer returned block {error}, which it has not"
                ) from error
        self._arena.drop([block for block, _ in found])
        for _, on_sent in found:
            if on_sent is not None:
                on_sent()

    def _add_frame(self, pieces: list[Piece], frame: Frame, on_sent: Callback | None) -> None:
        if frame.payload_bytes <= AT_ONCE_BYTES:
            # Its notice and its return would cost more; links within a machine have no seals.
            pieces.append(frame.head)
            pieces += frame.payload
            if on_sent is not None:
                self._callbacks.append(on_sent)
            return
        placed = self._place(frame, on_sent)
        if placed is None:
            super()._add_frame(pieces, frame, on_sent)
            return
        block, offset_bytes, on_returned = placed
        if block.segment.number not in self._announced:
            self._announce(pieces, block.segment)
        self._number += 1
        self._under_way[self._number] = (block, on_returned)
        notice = _SHARED.pack(
            self._number,
            block.segment.number,
            on_returned is not None,
            offset_bytes,
            frame.payload_bytes,
        )
        self._add(pieces, transport_head(TransportKind.SHARED, notice + frame.head))

    def _place(
        self, frame: Frame, on_sent: Callback | None
    ) -> tuple[Block, int, Callback | None] | None:
        """Find the payload in the arena or copy it there; None if there is no room."""
        payload = frame.payload
        found = self._arena.find(payload[0]) if len(payload) == 1 else None
        if found is not None:
            return *found, on_sent
        block = self._arena.take(frame.payload_bytes)
        if block is None:
            return None
        memory, at = block.segment.view, block.start
        for piece in payload:
            memory[at : at + piece.nbytes] = piece
            at += piece.nbytes
        if on_sent is not None:
            self._callbacks.append(on_sent)
        return block, block.start, None

    def _announce(self, pieces: list[Piece], segment: Segment) -> None:
        self._announced.add(segment.number)
        self._descriptors.append(segment.descriptor)
        body = _SEGMENT.pack(segment.number, segment.size_bytes)
        self._add(pieces, transport_head(TransportKind.SEGMENT, body))

    def _dropped(self) -> list[Callback]:
        under_way, self._under_way = self._under_way, {}
        if under_way:
            self._on_orphaned([block for block, _ in under_way.values()])
        return [on_sent for _, on_sent in under_way.values() if on_sent is not None]


class SharedLink(SocketLink):
    """See `SocketLink`.

    Args:
        arena: Where this side's payloads go.
        on_orphaned: See `SharedSender`.
    """

    def __init__(
        self,
        owner: LinkOwner,
        stream: DescriptorStream,
        session: Session,
        *,
        remote: str,
        accepted: bool,
        first: bytes,
        arena: Arena,
        on_orphaned: Callable[[list[Block]], None],
    ) -> None:
        self._descriptors = stream.descriptors
        self._segments: dict[int, memoryview] = {}
        self._released = array("Q")
        self._is_awaited = False
        self._arena = arena
        self._on_orphaned = on_orphaned
        super().__init__(
            owner, stream, session, remote=remote, accepted=accepted, sealed=False, first=first
        )

    def make_sender(self, stream: Stream, session: Session, sealed: bool) -> Sender:
        """See `SocketLink.make_sender`."""
        self._shared_sender = SharedSender(
            stream,
            session.peer_window_bytes,
            None,
            on_blocked=self.on_blocked,
            on_failed=self.on_failed,
            arena=self._arena,
            on_orphaned=self._on_orphaned,
        )
        return self._shared_sender

    def finish(self, reason: str, *, graceful: bool = False) -> None:
        """See `SocketLink.finish`. Segments stay mapped as long as a frame shows them."""
        super().finish(reason, graceful=graceful)
        self._segments.clear()

    def take_own(self, kind: int, head: bytes, payload: memoryview) -> None:
        """See `SocketLink.take_own`."""
        body = memoryview(head)[HEADER_BYTES:]
        try:
            if kind == TransportKind.SHARED:
                self._take_shared(body)
            elif kind == TransportKind.SEGMENT:
                self._take_segment(*_SEGMENT.unpack(body))
            elif kind == TransportKind.RETURNED:
                self._take_returned(body)
            else:
                super().take_own(kind, head, payload)
        except (struct.error, ValueError) as error:
            raise RemoteProtocolError(f"a malformed frame of kind {kind}: {error}") from error

    def _take_segment(self, number: int, size_bytes: int) -> None:
        if not self._descriptors or number in self._segments:
            raise RemoteProtocolError(f"segment {number} came twice, or without its file")
        self._segments[number] = map_segment(self._descriptors.popleft(), size_bytes)

    def _take_shared(self, body: memoryview) -> None:
        number, segment, at_once, offset_bytes, size_bytes = _SHARED.unpack_from(body)
        head = bytes(body[_SHARED.size :])
        # The notice's own checksum covers it.
        inner = read_header(head, self._limits)
        memory = self._segments.get(segment)
        if memory is None or offset_bytes + size_bytes > len(memory):
            raise RemoteProtocolError(f"a payload outside segment {segment}")
        if inner.payload_bytes != size_bytes or inner.head_bytes != len(head):
            raise RemoteProtocolError("a notice and its head state different sizes")
        with self._lock:
            self._receive_window.received(size_bytes)
        payload = memory[offset_bytes : offset_bytes + size_bytes]
        if inner.flags:
            check_payload(inner, (payload,))
        release = partial(self._release, number, bool(at_once))
        target = None
        if not self._closed_here:
            target = sink_target(self._owner.sink, self, head, size_bytes)
        if target is not None:
            target[:] = payload
            payload = target
        self.deliver(ReceivedFrame(head, payload, release))

    def _release(self, number: int, at_once: bool, frame: ReceivedFrame) -> None:
        """Return a block and its credit. Any thread."""
        with self._lock:
            self._released.append(number)
            report_bytes = self._receive_window.released(frame.payload.nbytes)
            report = self.credit_head(report_bytes) if report_bytes else None
            is_first = at_once and not report and not self._is_awaited
            self._is_awaited = self._is_awaited or is_first
        if report is not None:
            self._sender.send_own(report)
        elif is_first:
            # Most often the next frame takes the notice along.
            self._owner.before_sleep(self._return)

    def send(
        self, frame: Frame, priority: int = 0, on_sent: Callable[[], None] | None = None
    ) -> None:
        """See `Link.send`."""
        if self._is_awaited:
            report = self._awaited_report()
            if report is not None:
                self._sender.add_own(report)
        super().send(frame, priority, on_sent)

    def _return(self) -> None:
        report = self._awaited_report()
        if report is not None:
            self._sender.send_own(report)

    def _awaited_report(self) -> bytes | None:
        """Return the notice of blocks that the peer waits for, if it has not left."""
        with self._lock:
            return self.credit_head(0) if self._is_awaited else None

    def credit_head(self, report_bytes: int) -> bytes:
        """See `SocketLink.credit_head`."""
        body = _RETURNED.pack(report_bytes) + self._released.tobytes()
        self._released = array("Q")
        self._is_awaited = False
        return transport_head(TransportKind.RETURNED, body)

    def _take_returned(self, body: memoryview) -> None:
        (report_bytes,) = _RETURNED.unpack_from(body)
        numbers = array("Q")
        numbers.frombytes(body[_RETURNED.size :])
        self._shared_sender.returned(numbers.tolist())
        if report_bytes:
            self._shared_sender.credit(report_bytes)
