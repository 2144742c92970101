"""Messages by which a job learns the speeds of its machines' links before it begins.

Constructed and handled by ``core.prober`` and ``core.survey``; encoded by ``wire.codec``. What a
``Ping`` and a ``Pong`` carry has no meaning: it fills a link.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from bireme.types.nodes import NodeId
from bireme.wire.schema import Count, Kind, Message, Name

__all__ = ("MOST_PING_BYTES", "Ping", "Pong", "Probe", "Probed", "Target")

MOST_PING_BYTES = 256 << 10

_Size = Annotated[int, Meta(ge=0, le=MOST_PING_BYTES)]
_Seconds = Annotated[float, Meta(ge=0, le=60)]
_AtLeastZero = Annotated[float, Meta(ge=0)]


class Target(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A server to exchange bytes with, and where it listens."""

    node: NodeId
    addresses: Annotated[tuple[Name, ...], Meta(max_length=16)]


class Probe(Message, frozen=True):
    """Exchange bytes with these servers for a while, all at once, and say how many passed.

    With no time at all only the links are opened, and their round trips measured.
    """

    kind: ClassVar[Kind] = Kind.PROBE
    number: Count
    duration_s: _Seconds
    most_bytes: Count
    """On each link, each way."""
    targets: Annotated[tuple[Target, ...], Meta(max_length=65_536)]


class Probed(Message, frozen=True):
    """The answer to a ``Probe``."""

    kind: ClassVar[Kind] = Kind.PROBED
    number: Count
    bytes_per_s: _AtLeastZero
    """Over all its links together, each way."""
    round_trip_s: _AtLeastZero
    """Of the longest link, when nothing else is on it."""
    failed: tuple[NodeId, ...] = ()
    """Servers that were not reached."""


class Ping(Message, frozen=True):
    """Give me as many bytes back; answered to everyone who has proved to be of the job."""

    kind: ClassVar[Kind] = Kind.PING
    number: Count
    size_bytes: _Size

    def payload_size(self) -> int:
        """Return the bytes that fill it."""
        return self.size_bytes


class Pong(Message, frozen=True):
    """The answer to a ``Ping``, as large as it was."""

    kind: ClassVar[Kind] = Kind.PONG
    number: Count
    size_bytes: _Size

    def payload_size(self) -> int:
        """Return the bytes that fill it."""
        return self.size_bytes
