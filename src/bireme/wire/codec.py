"""Messages to bytes and back.

Called by the shells in ``node`` on every frame, and by the simulator when asked to. Whatever
bytes come in, ``decode_head`` returns a valid message or raises ``RemoteProtocolError``.
"""

from typing import Any

import msgspec

from bireme.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from bireme.wire.header import Buffer, read_head, write_header
from bireme.wire.limits import DEFAULT_LIMITS, Limits
from bireme.wire.messages import MESSAGES
from bireme.wire.schema import Message

__all__ = ("decode_body", "decode_head", "encode", "join_head")


def encode(
    message: Message,
    payload_bytes: int = 0,
    *,
    payload_crc: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the head of the frame that carries ``message``; its payload follows it.

    Args:
        message: Any message of ``wire.messages``.
        payload_bytes: Bytes of the payload, as the message itself announces them.
        payload_crc: ``header.crc_of`` the payload; ``None`` sends it without a checksum.
        limits: What the receiver takes.

    Raises:
        LocalProtocolError: The message and the payload do not agree, or exceed the limits.

    Guarantees:
        Text that cannot be UTF-8 travels with escapes: what errors quote may hold anything.

    Example:
        >>> from bireme.wire.messages import Heartbeat
        >>> head = encode(Heartbeat(1.5, view=2))
        >>> decode_head(head)
        (Heartbeat(sent_s=1.5, view=2), 0)
    """
    announced = message.payload_size()
    if announced != payload_bytes:
        raise LocalProtocolError(
            f"{type(message).__name__} announces {announced} bytes of payload, "
            f"but {payload_bytes} were given"
        )
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError:
        body = _encoder.encode(_escaped(message))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"cannot encode {type(message).__name__}: {error}") from error
    return join_head(message, body, payload_bytes, payload_crc, limits)


def _escaped(value: Any) -> Any:
    """Return plain data or a message with texts that can be encoded."""
    if type(value) is str:
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_escaped, value))
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return type(value)(**{name: _escaped(getattr(value, name)) for name in fields})
    return value


def join_head(
    message: Message, body: bytes, payload_bytes: int, payload_crc: int | None, limits: Limits
) -> bytes:
    """Return an encoded message behind its header.

    Raises:
        LocalProtocolError: It exceeds the limits.
    """
    if len(body) > limits.max_body_bytes or payload_bytes > limits.max_payload_bytes:
        raise LocalProtocolError(
            f"{type(message).__name__} of {len(body)} + {payload_bytes} bytes exceeds the limits "
            f"of {limits.max_body_bytes} + {limits.max_payload_bytes}"
        )
    return write_header(message.kind, body, payload_bytes, payload_crc=payload_crc) + body


def decode_head(head: Buffer, limits: Limits = DEFAULT_LIMITS) -> tuple[Message, int]:
    """Return the message in a frame's head, and how many bytes of payload belong to it.

    Args:
        head: Header and body, exactly.
        limits: What the peer may announce.

    Raises:
        RemoteProtocolError: The bytes are no valid head: damaged, of an unknown kind, with fields
            missing, surplus or out of range, or with a payload that does not fit the entries.
    """
    kind, payload_bytes, body = read_head(head, limits)
    return decode_body(kind, body, payload_bytes)


def decode_body(kind: int, body: Buffer, payload_bytes: int) -> tuple[Message, int]:
    """Return the message in a head that ``read_head`` took apart, and ``payload_bytes``.

    Raises:
        RemoteProtocolError: As :func:`decode_head`.
    """
    found = _DECODERS.get(kind)
    if found is None:
        raise RemoteProtocolError(f"a frame of unknown kind {kind}")
    name, decoder = found
    try:
        message = decoder.decode(body)
    except (msgspec.MsgspecError, ConfigError, RecursionError) as error:
        raise RemoteProtocolError(f"a malformed {name}: {error}") from error
    announced = message.payload_size()
    if announced != payload_bytes:
        raise RemoteProtocolError(
            f"the entries of a {type(message).__name__} sum to {announced} bytes of payload, "
            f"its frame to {payload_bytes}"
        )
    return message, payload_bytes


def _refuse_extension(code: int, _data: memoryview) -> object:
    raise ConfigError(f"msgpack extension {code}; plain data only")


_encoder = msgspec.msgpack.Encoder()

_DECODERS: dict[int, tuple[str, msgspec.msgpack.Decoder[Message]]] = {
    kind: (message.__name__, msgspec.msgpack.Decoder(message, ext_hook=_refuse_extension))
    for kind, message in MESSAGES.items()
}
