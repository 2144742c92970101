"""Cuts a stream of bytes into frames and puts payloads where they belong. Called by `SocketLink`.

Heads pass through a small staging area. A payload is received straight into its destination, but
for the few bytes that came in one read with its head. Everything that a peer can state is checked
before memory is taken for it.
"""

from typing import Protocol

from bireme.transport.seal import SEAL_BYTES, Seal
from bireme.transport.streams import WOULD_BLOCK, Stream
from bireme.wire.header import HEADER_BYTES, Header, check_body, check_payload, read_header
from bireme.wire.limits import Limits

__all__ = ("FrameReader", "FrameTaker")

_STAGING_BYTES = 64 << 10
_READ_AHEAD_BYTES = 4 << 10
"""How much may be read behind a payload: the next head, and little of a payload to copy again."""

_NOTHING = memoryview(b"")


class FrameTaker(Protocol):
    """Who the frames are for."""

    def payload_memory(self, head: bytes, payload_bytes: int) -> memoryview:
        """Return the memory for a payload about to arrive, or raise RemoteProtocolError."""

    def take_frame(self, kind: int, head: bytes, payload: memoryview) -> None:
        """Take a whole frame."""


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
        self._staging = memoryview(bytearray(max(_STAGING_BYTES, len(first))))
        self._staging[: len(first)] = first
        self._start = 0
        self._end = len(first)
        # The frame under way: its header once that is whole, then its head and payload.
        self._header: Header | None = None
        self._head = b""
        self._payload = _NOTHING
        self._missing_bytes = 0
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
        num_bytes = stream.receive([target, self._staging[:_READ_AHEAD_BYTES]])
        if num_bytes == WOULD_BLOCK:
            return num_bytes
        self.drained = num_bytes < len(target) + _READ_AHEAD_BYTES
        self._start, self._end = 0, max(num_bytes - self._missing_bytes, 0)
        self._missing_bytes -= num_bytes - self._end
        if not self._missing_bytes and self._header is not None:
            self._hand_over(self._header)
        return num_bytes

    def _free_staging(self) -> memoryview:
        """Return room behind what is staged; a frame's head always fits."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._staging) > _STAGING_BYTES:
                self._staging = memoryview(bytearray(_STAGING_BYTES))
        needed = self._header.head_bytes + self._seal_bytes if self._header else HEADER_BYTES
        if self._start + needed > len(self._staging) or self._end == len(self._staging):
            staged = bytes(self._staging[self._start : self._end])
            self._staging = memoryview(bytearray(max(needed, _STAGING_BYTES)))
            self._staging[: len(staged)] = staged
            self._start, self._end = 0, len(staged)
        return self._staging[self._end :]

    def parse(self) -> None:
        """Hand over the frames that are whole in the staging area."""
        while not self._missing_bytes:
            header = self._header
            if header is None:
                if self._end - self._start < HEADER_BYTES:
                    return
                header = read_header(self._staging[self._start : self._end], self._limits)
                self._header = header
            end = self._start + header.head_bytes
            if self._end < end + self._seal_bytes:
                return
            head = bytes(self._staging[self._start : end])
            check_body(head, header)
            if self._seal is not None:
                self._seal.check(head, bytes(self._staging[end : end + SEAL_BYTES]))
            self._start = end + self._seal_bytes
            self._head = head
            if header.payload_bytes:
                self._begin_payload(header)
            else:
                self._payload = _NOTHING
            if not self._missing_bytes:
                self._hand_over(header)

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
