"""A codec that knows entries again: what repeats in every training step is read and written once.

The entries of a ``Push``, ``Pull`` or ``Value`` are the same bytes in every step; only the numbers
beside them change. So a codec keeps the entries that it has seen, by their bytes and by identity:
the same bytes give the same tuple, which the state machines can know again in their turn. Owned by
a node's shell.
"""

from operator import attrgetter
from typing import Any

import msgspec

from bireme.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from bireme.wire.codec import decode_body, decode_head, encode, join_head
from bireme.wire.data import Pull, Push, Value
from bireme.wire.header import Buffer, read_head, read_verified, write_header
from bireme.wire.limits import DEFAULT_LIMITS, Limits
from bireme.wire.relay import Handover, JointPush
from bireme.wire.schema import Kind, Message

__all__ = ("Codec",)

_MOST_KEPT_BYTES = 8 << 20
_MOST_ENTRIES_BYTES = 256 << 10
_OVERHEAD_BYTES = 200

_Entries = tuple[Any, ...]


class _Form:
    """How one class of messages is read and written apart from its entries.

    Args:
        message: The class; its last field is ``entries``.
    """

    def __init__(self, message: type[Message]) -> None:
        fields = msgspec.structs.fields(message)
        assert fields[-1].name == "entries"
        raw: Any = msgspec.defstruct(
            f"Raw{message.__name__}",
            [(each.name, each.type) for each in fields[:-1]] + [("entries", msgspec.Raw)],
            frozen=True,
            array_like=True,
            forbid_unknown_fields=True,
        )
        self.message: Any = message
        self.rest_of = attrgetter(*[each.name for each in fields[:-1]])
        self.decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(raw)
        self.entries_decoder: msgspec.msgpack.Decoder[_Entries] = msgspec.msgpack.Decoder(
            fields[-1].type
        )


_FORMS: dict[type[Message], _Form] = {
    each: _Form(each) for each in (Push, Pull, Value, Handover, JointPush)
}
_BY_KIND: dict[int, _Form] = {int(form.message.kind): form for form in _FORMS.values()}
_encoder = msgspec.msgpack.Encoder()


class Codec:
    """Messages to bytes and back, as :func:`~bireme.wire.codec.encode` and ``decode_head`` do.

    Args:
        limits: What peers may announce, and what may be announced to them.

    Guarantees:
        The same bytes, messages and errors as those functions. What it keeps is bounded, whatever
        peers send. Two messages with the same bytes of entries have the same tuple of entries, as
        long as it is kept.

    Example:
        >>> from bireme.wire.data import PushEntry
        >>> codec = Codec()
        >>> pushes = [
        ...     Push(n, 1, 0, 0, 1, 1.0, False, True, n, 0, (PushEntry(3, 0, 0, 8),))
        ...     for n in (0, 1)
        ... ]
        >>> one, other = (codec.decode(codec.encode(push, 8))[0] for push in pushes)
        >>> other.round, one.entries is other.entries
        (1, True)
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._read: dict[tuple[int, bytes], tuple[_Entries, int]] = {}
        self._written: dict[int, tuple[_Entries, msgspec.Raw, int]] = {}
        self._read_bytes = 0
        self._written_bytes = 0

    def encode(
        self, message: Message, payload_bytes: int = 0, *, payload_crc: int | None = None
    ) -> bytes:
        """Return the head of the frame that carries ``message``; see ``codec.encode``."""
        form = _FORMS.get(type(message))
        if form is None:
            limits = self._limits
            return encode(message, payload_bytes, payload_crc=payload_crc, limits=limits)
        entries: _Entries = message.entries  # type: ignore[attr-defined]
        known = self._written.get(id(entries))
        if known is None:
            known = self._write(message, entries)
        _, raw, size_bytes = known
        if size_bytes != payload_bytes:
            raise LocalProtocolError(
                f"{type(message).__name__} announces {size_bytes} bytes of payload, "
                f"but {payload_bytes} were given"
            )
        try:
            body = _encoder.encode((*form.rest_of(message), raw))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"cannot encode {type(message).__name__}: {error}") from error
        limits = self._limits
        if len(body) > limits.max_body_bytes or payload_bytes > limits.max_payload_bytes:
            return join_head(message, body, payload_bytes, payload_crc, limits)  # which refuses it
        return write_header(message.kind, body, payload_bytes, payload_crc=payload_crc) + body

    def decode(self, head: Buffer, *, is_verified: bool = False) -> tuple[Message, int]:
        """Return the message in a frame's head and its payload's size; see ``decode_head``.

        Args:
            head: Header and body, exactly.
            is_verified: It comes from a transport, which has looked at its checksum and sizes.
        """
        kind, payload_bytes, body = (
            read_verified(head) if is_verified else read_head(head, self._limits)
        )
        form = _BY_KIND.get(kind)
        if form is None:
            return decode_body(kind, body, payload_bytes)
        try:
            raw = form.decoder.decode(body)
            written = bytes(raw.entries)
            known = self._read.get((kind, written))
            if known is None:
                known = self._look(kind, form, written)
            entries, size_bytes = known
            message: Message = form.message(*form.rest_of(raw), entries)
        except (msgspec.MsgspecError, ConfigError, RecursionError) as error:
            raise RemoteProtocolError(f"a malformed {Kind(kind).name}: {error}") from error
        if size_bytes != payload_bytes:
            return decode_head(head, self._limits)  # which says what is wrong
        return message, payload_bytes

    def _look(self, kind: int, form: _Form, written: bytes) -> tuple[_Entries, int]:
        entries = form.entries_decoder.decode(written)
        found = entries, sum([entry.payload_bytes for entry in entries if kind != Kind.PULL])
        if len(written) <= _MOST_ENTRIES_BYTES:
            self._read_bytes += len(written) + _OVERHEAD_BYTES
            if self._read_bytes > _MOST_KEPT_BYTES:
                self._read.clear()
                self._read_bytes = len(written) + _OVERHEAD_BYTES
            self._read[kind, written] = found
        return found

    def _write(self, message: Message, entries: _Entries) -> tuple[_Entries, msgspec.Raw, int]:
        try:
            raw = _encoder.encode(entries)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"cannot encode {type(message).__name__}: {error}") from error
        written = entries, msgspec.Raw(raw), message.payload_size()
        if len(raw) <= _MOST_ENTRIES_BYTES:
            self._written_bytes += len(raw) + _OVERHEAD_BYTES
            if self._written_bytes > _MOST_KEPT_BYTES:
                self._written.clear()
                self._written_bytes = len(raw) + _OVERHEAD_BYTES
            self._written[id(entries)] = written
        return written
