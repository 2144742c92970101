"""Messages of a relay, which speaks for all workers of one machine.

Constructed and handled by ``core.relay``, the workers beside it and the servers; encoded by
``wire.codec``. A worker hands its pushes over, the relay adds what belongs together in the
canonical sum and pushes that once, and hands the answers out.
"""

from math import isfinite
from typing import Annotated, ClassVar

from msgspec import Meta

from bireme.errors import ConfigError
from bireme.types.dtypes import DType
from bireme.wire.data import PullEntry, PushEntry
from bireme.wire.schema import Count, Kind, Message, Number, Text

__all__ = ("Declined", "Fetch", "Handover", "JointPush")

_Weight = Annotated[float, Meta(ge=0)]
_Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class Handover(Message, frozen=True):
    """A worker's push to ``server``, for the relay of its machine to deliver.

    Answered as a push is, by ``Value``, ``Ack`` or ``Declined``.
    """

    kind: ClassVar[Kind] = Kind.HANDOVER
    request: Count
    view: Number
    server: Count
    """Rank of the server that holds the slots."""
    dtype: DType | None
    """Of every slot; none when they differ."""
    rank: Count
    weight: _Weight
    mean: bool
    want_value: bool
    round: Count
    priority: _Priority
    entries: tuple[PushEntry, ...]

    def __post_init__(self) -> None:
        if not isfinite(self.weight):
            raise ConfigError(f"a push's weight must be finite, got {self.weight}")

    def payload_size(self) -> int:
        """Return the bytes of all entries."""
        return sum(entry.payload_bytes for entry in self.entries)


class JointPush(Message, frozen=True):
    """A push that covers the contributions of several ranks to one round of each slot.

    The server records every rank. Where all of them are known already it answers as to a repeated
    push; where only some are, it refuses, and each rank pushes for itself.
    """

    kind: ClassVar[Kind] = Kind.JOINT_PUSH
    request: Count
    view: Number
    rank: Count
    """The worker in whose process the relay is; its link carries this."""
    first_shard: Count
    """The contributions are those of the ranks whose shards are ``first_shard`` up to, without,
    ``end_shard``; a subtree of the canonical sum."""
    end_shard: Number
    weights: tuple[_Weight, ...]
    """Of each of these ranks, ascending."""
    weighed: bool
    """Each value was multiplied by its weight already."""
    mean: bool
    want_value: bool
    round: Count
    priority: _Priority
    entries: tuple[PushEntry, ...]

    def __post_init__(self) -> None:
        if not self.weights or not all(map(isfinite, self.weights)):
            raise ConfigError(f"a joint push needs finite weights, got {self.weights}")
        if not self.weighed and len(self.weights) > 1:
            raise ConfigError("a sum of several contributions has been weighed")
        if self.end_shard <= self.first_shard:
            raise ConfigError(f"a push covers no shard: {self.first_shard} to {self.end_shard}")

    def payload_size(self) -> int:
        """Return the bytes of all entries."""
        return sum(entry.payload_bytes for entry in self.entries)


class Fetch(Message, frozen=True):
    """A worker's ``Pull`` from ``server``, for the relay to ask once for all that ask the same.

    Answered as a pull is, by ``Value`` or ``Declined``.
    """

    kind: ClassVar[Kind] = Kind.FETCH
    request: Count
    view: Number
    server: Count
    rank: Count
    min_version: Count
    priority: _Priority
    entries: tuple[PullEntry, ...]


class Declined(Message, frozen=True):
    """The relay does not deliver this push, or fetch: send it to the server yourself."""

    kind: ClassVar[Kind] = Kind.DECLINED
    request: Count
    reason: Text
