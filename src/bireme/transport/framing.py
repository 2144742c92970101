"""The frames that transports add to those of `bireme.wire`, and the check of what leaves.

Kinds from 240 belong to the transport: links consume them and no caller sees one. Called by every
link.

| Kind | Name | Body |
| --- | --- | --- |
| 240 | credit | u64: bytes of payload that the receiver has released |
| 241 | bye | UTF-8: why the sender closes; nothing follows |
| 242 | shared | a head whose payload lies in shared memory, and where |
| 243 | segment | a piece of shared memory that later frames refer to |
| 244 | returned | which blocks of shared memory the receiver has released |
"""

import struct
from enum import IntEnum

from bireme.errors import LocalProtocolError, RemoteProtocolError
from bireme.transport.base import Frame, Link, PayloadSink
from bireme.wire.header import HEADER_BYTES, MAGIC, VERSION, read_header, write_header
from bireme.wire.limits import Limits

__all__ = (
    "FIRST_TRANSPORT_KIND",
    "TransportKind",
    "check_frame",
    "read_credit",
    "sink_target",
    "transport_head",
    "write_credit",
)

FIRST_TRANSPORT_KIND = 240

_CREDIT = struct.Struct("<Q")

# Each frame is checked as it is sent, so this looks at three fields of `bireme.wire.header` only.
_SIZES = struct.Struct("<5xB2xIQ")
_START = MAGIC + bytes([VERSION])


class TransportKind(IntEnum):
    """The ``kind`` in the header of a frame that belongs to the transport."""

    CREDIT = 240
    BYE = 241
    SHARED = 242
    SEGMENT = 243
    RETURNED = 244


def check_frame(frame: Frame, limits: Limits) -> None:
    """Refuse a frame that the peer would take for a breach of the protocol.

    Raises:
        LocalProtocolError: The head is none, is a transport's own, states another payload size than
            the frame has, or exceeds the limits.
    """
    head = frame.head
    if len(head) >= HEADER_BYTES:
        kind, body_bytes, payload_bytes = _SIZES.unpack_from(head)
        if (
            payload_bytes == frame.payload_bytes <= limits.max_payload_bytes
            and len(head) == HEADER_BYTES + body_bytes <= HEADER_BYTES + limits.max_body_bytes
            and kind < FIRST_TRANSPORT_KIND
            and head.startswith(_START)
        ):
            return
    _refuse_frame(frame, limits)


def _refuse_frame(frame: Frame, limits: Limits) -> None:
    """Say what is wrong with a frame, at leisure."""
    try:
        header = read_header(frame.head, limits)
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"cannot send this frame: {error}") from error
    if len(frame.head) != HEADER_BYTES + header.body_bytes:
        raise LocalProtocolError(
            f"cannot send this frame: its head has {len(frame.head)} bytes and states "
            f"{HEADER_BYTES + header.body_bytes}"
        )
    if header.payload_bytes != frame.payload_bytes:
        raise LocalProtocolError(
            f"cannot send this frame: its head states {header.payload_bytes} bytes of payload, "
            f"it has {frame.payload_bytes}"
        )
    if header.kind >= FIRST_TRANSPORT_KIND:
        raise LocalProtocolError(f"cannot send kind {header.kind}: it belongs to the transport")


def transport_head(kind: TransportKind, body: bytes) -> bytes:
    """Return a whole frame of the transport's own.

    Example:
        >>> read_header(transport_head(TransportKind.BYE, b"done")).body_bytes
        4
    """
    return write_header(kind, body, 0) + body


def write_credit(size_bytes: int) -> bytes:
    """Return the frame that reports released payload.

    Example:
        >>> read_credit(write_credit(4096)[HEADER_BYTES:])
        4096
    """
    return transport_head(TransportKind.CREDIT, _CREDIT.pack(size_bytes))


def read_credit(body: bytes) -> int:
    """Return the bytes that a credit frame reports.

    Raises:
        RemoteProtocolError: The body is none of a credit frame.
    """
    if len(body) != _CREDIT.size:
        raise RemoteProtocolError(f"a credit frame with a body of {len(body)} bytes")
    (size_bytes,) = _CREDIT.unpack(body)
    return int(size_bytes)


def sink_target(
    sink: PayloadSink | None, link: Link, head: bytes, payload_bytes: int
) -> memoryview | None:
    """Return where the owner wants a payload, as plain bytes, or None for the transport's memory.

    Raises:
        LocalProtocolError: The sink named memory of another size, or that cannot be written.
    """
    if sink is None or not payload_bytes:
        return None
    target = sink(link, head, payload_bytes)
    if target is None:
        return None
    if target.readonly or not target.c_contiguous or target.nbytes != payload_bytes:
        raise LocalProtocolError(
            f"the sink must name {payload_bytes} writable contiguous bytes, "
            f"got {target.nbytes} (read-only: {target.readonly})"
        )
    return target.cast("B")
