"""Cuts a stream of bytes into frames and puts payloads where they belong. Called by `SocketLink`.

Heads pass through a small staging area, and so do small payloads, which are shown where they lie
there. A large payload is received straight into its destination, but for the few bytes that came in
one read with its head. Everything that a peer can state is checked before memory is taken for it.
"""

from typing import Protocol

from bireme.transport.seal import SEAL_BYTES, Seal
from bireme.transport.streams import WOULD_BLOCK, Stream
from bireme.wire.header import (
    HEADER_BYTES,
    Header,
    check_payload,
    quick_head,
    read_header,
    verified_head,
)
from bireme.wire.limits import Limits

__all__ = ("FrameReader", "FrameTaker", "Staging")

_STAGING_BYTES = 64 << 10
_READ_AHEAD_BYTES = 4 << 10
"""How much may be read behind a payload: the next head, and little of a payload to copy again."""

_LEAST_ROOM_BYTES = 32 << 10
"""Where frames still look at what was staged, the next ones come behind it while this is left."""

_ALIGNED = 63

_NOTHING = memoryview(b"")


class Staging:
    """Memory that heads and small payloads pass through.

    Attributes:
        memory: The bytes.
        lent: How many frames show some of them. Whoever has received a frame counts here, under
            a lock of its own.
    """

    __slots__ = ("lent", "memory")

    def __init__(self, size_bytes: int) -> None:
        self.memory = memoryview(bytearray(size_bytes))
        self.lent = 0


class FrameTaker(Protocol):
    """Who the frames are for."""

    def payload_memory(self, head: bytes, payload_bytes: int) -> memoryview:
        """Return the memory for a payload about to arrive, or raise RemoteProtocolError."""

    def take_frame(self, kind: int, head: bytes, payload: memoryview) -> None:
        """Take a whole frame, with the payload in the memory that was asked for."""

    def take_staged(self, kind: int, head: bytes, payload: memoryview, staging: Staging) -> None:
        """Take a whole frame with a payload in ``staging``; raises as ``payload_memory``."""


class FrameReader:
    """Reads one stream.

    Attributes:
        num_bytes: Bytes read so far.
        drained: Whether the last read got less than it had room for.

    Args:
        taker: Asked for payload memory and given the frames.
        limits: What the peer may state.
        seal: Checks the seal behind each head; None if there are none.
        first: Bytes that arrived before, with the handshake.
    """

    def __init__(
        self, taker: FrameTaker, limits: Limits, seal: Seal | None, first: bytes = b""
    ) -> None:
        self._taker = taker
        self._limits = limits
        self._seal = seal
        self._seal_bytes = SEAL_BYTES if seal else 0
        self._stage(max(_STAGING_BYTES, len(first)))
        self._staging[: len(first)] = first
        self._start = 0
        self._end = len(first)
        # The frame under way: its header once that is whole, then its head and payload.
        self._header: Header | None = None
        self._head = b""
        self._payload = _NOTHING
        self._missing_bytes = 0
        self._lead_bytes = 0
        self.num_bytes = len(first)
        self.drained = False

    @property
    def mid_frame(self) -> bool:
        """Whether a part of a frame has arrived."""
        return bool(self._missing_bytes) or self._end > self._start

    def read(self, stream: Stream) -> int:
        """Read once, hand over the frames that are whole, and return as `Stream.receive` does.

        Raises:
            RemoteProtocolError: What arrived is no frame, or breaks a limit.
            OSError: The connection is gone.
        """
        if self._missing_bytes:
            num_bytes = self._read_payload(stream)
        else:
            if self._start == self._end and not self._owner_of_staging.lent and self._is_usual:
                # A payload behind a head as long as the last one's then lies well for computing.
                self._start = self._end = -self._lead_bytes & _ALIGNED
                room = self._staging[self._end :]
            else:
                room = self._free_staging()
            num_bytes = stream.receive([room])
            self.drained = num_bytes < len(room)
            if num_bytes > 0:
                self._end += num_bytes
        if num_bytes > 0:
            self.num_bytes += num_bytes
            self.parse()
        return num_bytes

    def _read_payload(self, stream: Stream) -> int:
        """Read the rest of the payload, and a little of what follows; staging is empty."""
        target = self._payload[-self._missing_bytes :]
        ahead = self._free_staging()[:_READ_AHEAD_BYTES]
        num_bytes = stream.receive([target, ahead])
        if num_bytes == WOULD_BLOCK:
            return num_bytes
        self.drained = num_bytes < len(target) + len(ahead)
        ahead_bytes = max(num_bytes - self._missing_bytes, 0)
        self._end += ahead_bytes
        self._missing_bytes -= num_bytes - ahead_bytes
        if not self._missing_bytes and self._header is not None:
            self._hand_over(self._header)
        return num_bytes

    def _stage(self, size_bytes: int) -> None:
        self._owner_of_staging = Staging(size_bytes)
        self._staging = self._owner_of_staging.memory
        self._is_usual = size_bytes == _STAGING_BYTES

    def _free_staging(self) -> memoryview:
        """Return room behind what is staged; a frame's head always fits."""
        is_empty = self._start == self._end
        if is_empty and not self._owner_of_staging.lent:
            if len(self._staging) > _STAGING_BYTES:
                self._stage(_STAGING_BYTES)
            # A payload behind a head as long as the last one's then lies well for computing.
            self._start = self._end = -self._lead_bytes & _ALIGNED
            return self._staging[self._end :]
        needed, room = HEADER_BYTES, len(self._staging) - self._end
        if self._header is not None and not self._missing_bytes:
            needed, room = self._header.head_bytes + self._seal_bytes, _LEAST_ROOM_BYTES
        if self._start + needed > len(self._staging) or room < _LEAST_ROOM_BYTES:
            staged = bytes(self._staging[self._start : self._end])
            self._stage(max(needed, _STAGING_BYTES, len(staged) + _LEAST_ROOM_BYTES))
            self._staging[: len(staged)] = staged
            self._start, self._end = 0, len(staged)
        return self._staging[self._end :]

    def parse(self) -> None:
        """Hand over the frames that are whole in the staging area."""
        while not self._missing_bytes:
            header, start = self._header, self._start
            if header is None:
                if self._end - start < HEADER_BYTES:
                    return
                if self._take_quickly(start):
                    continue
                header = read_header(self._staging[start : self._end], self._limits)
                self._header = header
            end = start + header[2] + HEADER_BYTES
            payload_at = end + self._seal_bytes
            if self._end < payload_at:
                return
            head = verified_head(self._staging[start:end], header)
            if self._seal is not None:
                self._seal.check(head, bytes(self._staging[end:payload_at]))
            self._start = payload_at
            payload_bytes = header[3]
            if not payload_bytes:
                self._header = None
                self._taker.take_frame(header[0], head, _NOTHING)
            elif payload_at + payload_bytes <= self._end:
                self._show(header, head, payload_at)
            else:
                self._head = head
                self._begin_payload(header)

    def _take_quickly(self, start: int) -> bool:
        """Hand over a frame that is whole; return whether there was one that needs no more."""
        found = quick_head(self._staging, start, self._end, self._limits)
        if found is None:
            return False
        kind, payload_bytes, head = found
        seal_at = start + len(head)
        payload_at = seal_at + self._seal_bytes
        end = payload_at + payload_bytes
        if end > self._end:
            return False
        if self._seal is not None:
            self._seal.check(head, bytes(self._staging[seal_at:payload_at]))
        self._start = end
        if payload_bytes:
            self._lead_bytes = payload_at - start
            payload = self._staging[payload_at:end]
            self._taker.take_staged(kind, head, payload, self._owner_of_staging)
        else:
            self._taker.take_frame(kind, head, _NOTHING)
        return True

    def _show(self, header: Header, head: bytes, payload_at: int) -> None:
        """Hand over a frame whose payload has come with its head."""
        self._start = payload_at + header[3]
        self._lead_bytes = len(head) + self._seal_bytes
        payload = self._staging[payload_at : self._start]
        self._header = None
        if header[1]:
            check_payload(header, (payload,))
        self._taker.take_staged(header[0], head, payload, self._owner_of_staging)

    def _begin_payload(self, header: Header) -> None:
        """Find memory for the payload and copy what has been staged of it."""
        self._payload = self._taker.payload_memory(self._head, header.payload_bytes)
        staged_bytes = min(self._end - self._start, header.payload_bytes)
        self._payload[:staged_bytes] = self._staging[self._start : self._start + staged_bytes]
        self._start += staged_bytes
        self._missing_bytes = header.payload_bytes - staged_bytes

    def _hand_over(self, header: Header) -> None:
        payload, self._payload = self._payload, _NOTHING
        self._header = None
        if header.flags:
            check_payload(header, (payload,))
        self._taker.take_frame(header.kind, self._head, payload)

    def abandon(self) -> memoryview:
        """Return the memory of a payload that will not be completed."""
        payload, self._payload = self._payload, _NOTHING
        return payload
