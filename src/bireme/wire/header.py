"""The header of a frame: 28 bytes that say how much follows, and prove that they are whole.

Called by ``wire.codec`` and by every transport. A frame is

    header | body (msgpack, ``body_bytes``) | payload (raw, ``payload_bytes``)

and header and body together are its head. All numbers are little-endian.

| Bytes | Field | Meaning |
| --- | --- | --- |
| 0-3 | magic | ``BRM1`` |
| 4 | version | 1 |
| 5 | kind | the message's number; 240 and above are a transport's own frames |
| 6-7 | flags | bit 0: ``payload_crc`` is set; all others are 0 |
| 8-11 | body_bytes | |
| 12-19 | payload_bytes | |
| 20-23 | payload_crc | CRC-32 of the payload, or 0 |
| 24-27 | crc | CRC-32 of bytes 0-23 and the body |
"""

import struct
import zlib
from collections.abc import Iterable
from enum import IntFlag
from typing import NamedTuple

from bireme.errors import LocalProtocolError, RemoteProtocolError
from bireme.wire.limits import DEFAULT_LIMITS, Limits

__all__ = (
    "HEADER_BYTES",
    "MAGIC",
    "VERSION",
    "Buffer",
    "Flags",
    "Header",
    "check_body",
    "check_payload",
    "crc_of",
    "has_payload_crc",
    "quick_head",
    "read_head",
    "read_header",
    "read_verified",
    "verified_head",
    "write_header",
)

MAGIC = b"BRM1"
VERSION = 1

_FIELDS = struct.Struct("<4sBBHIQI")
_CRC = struct.Struct("<I")
_FLAGS_AT = 6
_WHOLE = struct.Struct("<4sBBHIQII")
_SIZES = struct.Struct("<5xB2xIQ")
_COVERED_BYTES = _FIELDS.size

HEADER_BYTES = _FIELDS.size + _CRC.size
"""Bytes to read before anything else of a frame."""

Buffer = bytes | bytearray | memoryview
"""What frames are read from."""


class Flags(IntFlag):
    """What a header says besides sizes."""

    NONE = 0
    CRC_PAYLOAD = 1


_KNOWN_FLAGS = int(Flags.CRC_PAYLOAD)
_FLAGS = tuple(Flags(number) for number in range(_KNOWN_FLAGS + 1))


class Header(NamedTuple):
    """A header whose magic, version, flags and sizes have been checked; its crc has not."""

    kind: int
    flags: Flags
    body_bytes: int
    payload_bytes: int
    payload_crc: int
    crc: int

    @property
    def head_bytes(self) -> int:
        """Bytes of header and body together."""
        return HEADER_BYTES + self.body_bytes


def write_header(
    kind: int, body: Buffer, payload_bytes: int, *, payload_crc: int | None = None
) -> bytes:
    """Return the header that precedes ``body``.

    Args:
        kind: The message's number, 0 to 255.
        body: The encoded message.
        payload_bytes: Bytes that follow the body.
        payload_crc: ``crc_of`` the payload; ``None`` leaves it unchecked.

    Raises:
        LocalProtocolError: A field does not fit.

    Example:
        >>> header = write_header(7, b"abc", 0)
        >>> len(header), read_header(header).body_bytes
        (28, 3)
    """
    flags = Flags.NONE if payload_crc is None else Flags.CRC_PAYLOAD
    try:
        fields = _FIELDS.pack(
            MAGIC, VERSION, kind, flags, len(body), payload_bytes, payload_crc or 0
        )
    except struct.error as error:
        raise LocalProtocolError(
            f"no frame of kind {kind} with {len(body)} + {payload_bytes} bytes: {error}"
        ) from error
    return fields + _CRC.pack(zlib.crc32(body, zlib.crc32(fields)))


def read_header(data: Buffer, limits: Limits = DEFAULT_LIMITS) -> Header:
    """Read the header at the start of ``data``, which may be longer.

    Args:
        data: At least ``HEADER_BYTES`` bytes.
        limits: What the peer may announce.

    Raises:
        RemoteProtocolError: The bytes are no header of this protocol's version, or announce more
            than ``limits`` allow.
    """
    if len(data) < HEADER_BYTES:
        raise RemoteProtocolError(f"a header has {HEADER_BYTES} bytes, got {len(data)}")
    magic, version, kind, flags, body_bytes, payload_bytes, payload_crc, crc = _WHOLE.unpack_from(
        data
    )
    if (
        magic != MAGIC
        or version != VERSION
        or flags & ~_KNOWN_FLAGS
        or (payload_crc and not flags)
        or body_bytes > limits.max_body_bytes
        or payload_bytes > limits.max_payload_bytes
    ):
        _refuse_header(data, limits)
    return Header(kind, _FLAGS[flags], body_bytes, payload_bytes, payload_crc, crc)


def _refuse_header(data: Buffer, limits: Limits) -> None:
    """Say what is wrong with a header, at leisure."""
    magic, version, _, flags, body_bytes, payload_bytes, _, _ = _WHOLE.unpack_from(data)
    if magic != MAGIC:
        raise RemoteProtocolError(
            f"the peer does not speak this protocol: frame starts with {magic!r}"
        )
    if version != VERSION:
        raise RemoteProtocolError(
            f"the peer speaks protocol version {version}, this process version {VERSION}; "
            "run the same release of bireme on every machine"
        )
    _refuse_excess("body", body_bytes, limits.max_body_bytes)
    _refuse_excess("payload", payload_bytes, limits.max_payload_bytes)
    raise RemoteProtocolError(f"a frame with unknown flags {flags:#06x}")


def verified_head(data: memoryview, header: Header) -> bytes:
    """Return a whole head as bytes, once it is shown to be the one that was sent.

    Args:
        data: Header and body, exactly.
        header: What ``read_header(data)`` returned.

    Raises:
        RemoteProtocolError: The checksum is wrong.
    """
    head = bytes(data)
    if zlib.crc32(head[HEADER_BYTES:], zlib.crc32(head[:_COVERED_BYTES])) != header[5]:
        check_body(head, header)
    return head


def quick_head(
    data: memoryview, start: int, end: int, limits: Limits = DEFAULT_LIMITS
) -> tuple[int, int, bytes] | None:
    """Take the whole head of a frame without a checksum of its payload out of a stream.

    Args:
        data: Where the bytes of the stream lie.
        start: Where the frame starts.
        end: Where the bytes end that have come so far.
        limits: What the peer may announce.

    Returns:
        Kind, bytes of the payload, and the head; ``None`` if it is not whole, or not right, or
        needs a closer look: ``read_header`` and ``verified_head`` say which.

    Example:
        >>> frame = memoryview(write_header(7, b"abc", 5) + b"abc")
        >>> quick_head(frame, 0, 31)[:2], quick_head(frame, 0, 30)
        ((7, 5), None)
    """
    if end - start < HEADER_BYTES:
        return None
    magic, version, kind, flags, body_bytes, payload_bytes, payload_crc, crc = _WHOLE.unpack_from(
        data, start
    )
    if (
        magic != MAGIC
        or version != VERSION
        or flags
        or payload_crc
        or body_bytes > min(limits.max_body_bytes, end - start - HEADER_BYTES)
        or payload_bytes > limits.max_payload_bytes
    ):
        return None
    head = bytes(data[start : start + HEADER_BYTES + body_bytes])
    if zlib.crc32(head[HEADER_BYTES:], zlib.crc32(head[:_COVERED_BYTES])) != crc:
        return None
    return kind, payload_bytes, head


def read_verified(head: Buffer) -> tuple[int, int, memoryview]:
    """Take a head apart that a transport has read with ``read_header`` and ``verified_head``.

    Returns:
        The kind, the bytes of the payload, and the body.

    Raises:
        RemoteProtocolError: It is none: it ends within the header, or its body is of another size.
    """
    if len(head) >= HEADER_BYTES:
        kind, body_bytes, payload_bytes = _SIZES.unpack_from(head)
        if len(head) == HEADER_BYTES + body_bytes:
            return kind, payload_bytes, memoryview(head)[HEADER_BYTES:]
    return read_head(head)


def read_head(head: Buffer, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int, memoryview]:
    """Take a whole head apart, once it is shown to be the one that was sent.

    The same checks as ``read_header`` and ``check_body`` in fewer steps: this is done to every
    message.

    Args:
        head: Header and body, exactly.
        limits: What the peer may announce.

    Returns:
        The kind, the bytes of the payload, and the body.

    Raises:
        RemoteProtocolError: As those functions.
    """
    view = memoryview(head)
    if len(view) >= HEADER_BYTES:
        magic, version, kind, flags, body_bytes, payload_bytes, payload_crc, crc = (
            _WHOLE.unpack_from(view)
        )
        body = view[HEADER_BYTES:]
        if (
            magic == MAGIC
            and version == VERSION
            and not flags & ~_KNOWN_FLAGS
            and (flags or not payload_crc)
            and len(body) == body_bytes <= limits.max_body_bytes
            and payload_bytes <= limits.max_payload_bytes
            and zlib.crc32(body, zlib.crc32(view[: _FIELDS.size])) == crc
        ):
            return kind, payload_bytes, body
    header = read_header(head, limits)
    check_body(head, header)
    raise AssertionError("a head that is right was taken for wrong")


def has_payload_crc(head: Buffer) -> bool:
    """Return whether a head that was read announces the checksum of its payload.

    Example:
        >>> has_payload_crc(write_header(7, b"", 3, payload_crc=5))
        True
    """
    return bool(head[_FLAGS_AT] & Flags.CRC_PAYLOAD)


def check_body(head: Buffer, header: Header) -> None:
    """Refuse a head whose bytes are not those that were sent.

    Args:
        head: Header and body.
        header: What ``read_header(head)`` returned.

    Raises:
        RemoteProtocolError: The length or the checksum is wrong.
    """
    if len(head) != header.head_bytes:
        raise RemoteProtocolError(
            f"a head of {header.head_bytes} bytes was announced, got {len(head)}"
        )
    view = memoryview(head)
    crc = zlib.crc32(view[HEADER_BYTES:], zlib.crc32(view[: _FIELDS.size]))
    if crc != header.crc:
        raise RemoteProtocolError(
            f"a frame of kind {header.kind} is damaged: checksum {crc:08x}, sent {header.crc:08x}"
        )


def check_payload(header: Header, payload: Iterable[Buffer]) -> None:
    """Refuse a payload that is not the one that was sent; only its length if it has no checksum.

    Args:
        header: The frame's header.
        payload: The payload's parts in order.

    Raises:
        RemoteProtocolError: The length or the checksum is wrong.
    """
    parts = list(payload)
    size_bytes = sum(memoryview(part).nbytes for part in parts)
    if size_bytes != header.payload_bytes:
        raise RemoteProtocolError(
            f"a payload of {header.payload_bytes} bytes was announced, got {size_bytes}"
        )
    if header.flags & Flags.CRC_PAYLOAD and crc_of(parts) != header.payload_crc:
        raise RemoteProtocolError(
            f"the payload of a frame of kind {header.kind} is damaged: its checksum is wrong"
        )


def crc_of(payload: Iterable[Buffer]) -> int:
    """Return the CRC-32 of a payload given as parts in order.

    Example:
        >>> crc_of([b"ab", b"c"]) == crc_of([b"abc"])
        True
    """
    crc = 0
    for part in payload:
        crc = zlib.crc32(part, crc)
    return crc


def _refuse_excess(what: str, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise RemoteProtocolError(
            f"a frame announces a {what} of {size_bytes} bytes; at most {limit_bytes} are taken"
        )
