"""Heads that repeat but for two numbers: written and known again without taking them apart.

A training step sends the same ``Push`` and gets the same ``Value`` as the step before, only the
request and the round have gone on. A stencil writes both numbers in eight bytes each, where
msgpack would take as few as it can; so all else stays where it is, and one comparison shows that a
head is the one of the step before. Any reader of the protocol understands such a head. Owned by a
node's shell, beside its codec.
"""

import struct
import zlib

import msgspec

from bireme.wire.data import Push, Value
from bireme.wire.header import HEADER_BYTES, write_header
from bireme.wire.schema import Message

__all__ = ("Repeated", "Repeats", "Stencil")

Repeated = Push | Value
"""What may repeat."""

_NUMBERS: dict[type[Message], tuple[str, str]] = {
    Push: ("request", "round"),
    Value: ("request", "version"),
}
_encode = msgspec.msgpack.Encoder().encode
_ARRAY = 0x90
_WIDE = 0xCF
"""What msgpack puts before an integer of eight bytes."""
_WIDE_AT = HEADER_BYTES + 1
_COVERED_BYTES = HEADER_BYTES - 4
_MOST = 2**62
"""The largest number that messages hold."""
_MOST_KNOWN = 1 << 10
_MOST_TAIL_BYTES = 16 << 10


class Stencil:
    """The head of a message in all its repetitions.

    Args:
        message: One of them.
        payload_bytes: What follows the head each time.

    Example:
        >>> from bireme.wire.codec import decode_head
        >>> stencil = Stencil(Value(7, 1, 3, ()), 0)
        >>> decode_head(stencil.write(8, 4))
        (Value(request=8, view=1, version=4, entries=()), 0)
        >>> stencil.read(stencil.write(8, 4)), stencil.read(b"something else")
        ((8, 4), None)
    """

    __slots__ = ("_covered", "_crc", "_form", "_middle", "_size", "_start", "_tail", "tail_at")

    def __init__(self, message: Repeated, payload_bytes: int) -> None:
        first, second = _NUMBERS[type(message)]
        parts = {name: _encode(getattr(message, name)) for name in message.__struct_fields__}
        names = list(parts)
        at = names.index(second)
        wide = bytes([_WIDE])
        assert names[0] == first
        assert len(names) < 16
        self._start = bytes([_ARRAY | len(names)]) + wide
        self._middle = b"".join([parts[name] for name in names[1:at]]) + wide
        self._tail = b"".join([parts[name] for name in names[at + 1 :]])
        body_bytes = len(self._start) + len(self._middle) + len(self._tail) + 16
        header = write_header(message.kind, bytes(body_bytes), payload_bytes)
        self._covered = header[:_COVERED_BYTES]
        self._crc = zlib.crc32(self._covered)
        self._form = struct.Struct(f">{_COVERED_BYTES}s4x2sQ{len(self._middle)}sQ")
        self._size = HEADER_BYTES + body_bytes
        self.tail_at = self._form.size
        """Where what follows both numbers begins."""

    def write(self, first: int, second: int) -> bytes:
        """Return the head with these numbers.

        Args:
            first: The request.
            second: The round of a ``Push``, the version of a ``Value``.
        """
        body = b"".join(
            (
                self._start,
                first.to_bytes(8, "big"),
                self._middle,
                second.to_bytes(8, "big"),
                self._tail,
            )
        )
        return self._covered + zlib.crc32(body, self._crc).to_bytes(4, "little") + body

    def read(self, head: bytes) -> tuple[int, int] | None:
        """Return the numbers in a head whose checksum is right; ``None`` if it is another's."""
        if len(head) != self._size:
            return None
        covered, start, first, middle, second = self._form.unpack_from(head)
        if (
            covered != self._covered
            or start != self._start
            or middle != self._middle
            or not head.endswith(self._tail)
            or max(first, second) > _MOST
        ):
            return None
        return first, second


class Repeats:
    """The repeating messages of one link, by their heads.

    Guarantees:
        What is found is what the codec would decode, but for the two numbers. What is kept is
        bounded.

    Example:
        >>> repeats, message = Repeats(), Value(7, 1, 3, ())
        >>> stencil = Stencil(message, 0)
        >>> repeats.learn(stencil.write(7, 3), message, 0)
        >>> repeats.find(stencil.write(8, 4))
        (Value(request=7, view=1, version=3, entries=()), 8, 4)
    """

    def __init__(self) -> None:
        self._tail_at = 0
        self._known: dict[bytes, tuple[Stencil, Repeated]] = {}

    def learn(self, head: bytes, message: Repeated, payload_bytes: int) -> None:
        """Know a message again from now on, if a stencil has written its head.

        Args:
            head: As it came.
            message: What the codec made of it.
            payload_bytes: What followed it.
        """
        if len(head) <= _WIDE_AT or head[_WIDE_AT] != _WIDE or len(head) > _MOST_TAIL_BYTES:
            return
        stencil = Stencil(message, payload_bytes)
        first, second = (getattr(message, name) for name in _NUMBERS[type(message)])
        if stencil.write(first, second) != head:
            return
        if stencil.tail_at != self._tail_at or len(self._known) >= _MOST_KNOWN:
            # Where tails begin depends on the view and the rank, which seldom change.
            self._known.clear()
            self._tail_at = stencil.tail_at
        self._known[head[stencil.tail_at :]] = stencil, message

    def find(self, head: bytes) -> tuple[Repeated, int, int] | None:
        """Return a message that was like this one, and this one's two numbers.

        Args:
            head: Of any frame; its checksum is right.
        """
        known = self._known.get(head[self._tail_at :])
        if known is None:
            return None
        numbers = known[0].read(head)
        return None if numbers is None else (known[1], *numbers)
