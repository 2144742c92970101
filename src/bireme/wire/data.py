"""Messages between a worker and a server: values, gradients, rows, commands.

Constructed and handled by ``core``; encoded by ``wire.codec``. A payload is the raw bytes of a
message's entries back to back, in the order of the entries; the entries say how long each is, and
the codec refuses a frame whose payload is not exactly their sum.
"""

from enum import StrEnum
from math import isfinite
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from bireme.errors import ConfigError
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import NodeId
from bireme.wire.schema import Body, Count, Kind, Message, Number, Text, check_plain

__all__ = (
    "Ack",
    "Attach",
    "Attached",
    "Command",
    "CommandDone",
    "CommandKind",
    "Fault",
    "FaultCode",
    "Init",
    "InitEntry",
    "Pull",
    "PullEntry",
    "PullRows",
    "Push",
    "PushEntry",
    "RoundEntry",
    "Rounds",
    "RoundsReply",
    "Rows",
    "SlotRound",
    "Stale",
    "Value",
    "ValueEntry",
)

_Encoding = Annotated[str, Meta(max_length=32)]
_Weight = Annotated[float, Meta(ge=0)]
_Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]

_ROW_ID_BYTES = 8


class CommandKind(StrEnum):
    """What a worker may tell a server to do besides moving values."""

    SET_OPTIMIZER = "set_optimizer"
    SET_HYPER_PARAMETERS = "set_hyper_parameters"
    SAVE_STATE = "save_state"
    LOAD_STATE = "load_state"
    TABLE = "table"
    """Count, save or load the rows of a table; the body's ``op`` says which."""


class FaultCode(StrEnum):
    """Whose fault it is that a request was not served."""

    BAD_REQUEST = "bad_request"
    """The caller passed something wrong: ``ConfigError``."""
    UNKNOWN_KEY = "unknown_key"
    UNSUPPORTED = "unsupported"
    WRONG_STATE = "wrong_state"
    """Right request, wrong moment: ``StateError``."""
    TOO_LARGE = "too_large"
    INTERNAL = "internal"
    """A defect, or the node ran out of something; the text says what."""


class _Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Base of the entries, of which a message may hold thousands."""


class SlotRound(_Part, frozen=True):
    """One round of one slot."""

    key_id: Count
    index: Count
    round: Count


class InitEntry(_Part, frozen=True):
    """The first value of one slot, and all that a server needs to know of it."""

    key_id: Count
    index: Count
    dtype: DType
    length: Count
    """Elements of the slot."""
    row_length: Count
    """Elements of one row of the whole value; 1 for vectors and scalars."""
    layout: Layout
    consistency: Consistency
    payload_bytes: Count
    """``length * itemsize``, or 0 for a value of zeros, which then need not travel."""
    shape: Annotated[tuple[Count, ...], Meta(max_length=64)] | None = None
    """Shape of the whole value, for a slot that is all of it; some optimizers look at it."""
    staleness: Count = 0
    """For ``bounded``: rounds that a worker may be ahead of the slowest."""


class PushEntry(_Part, frozen=True):
    """One slot's gradient or value within a ``Push``."""

    key_id: Count
    index: Count
    lead: Count
    """The sender's push number for this slot is this much above the message's ``round``."""
    payload_bytes: Count
    encoding: _Encoding = "raw"
    """``raw`` (the slot's own dtype), or a compressor's name: ``2bit``, ``1bit``, ``fp16``..."""
    layout: Layout = Layout.DENSE
    num_rows: Count = 0
    """For ``rows``: the payload is so many int64 row numbers within the slot, then the rows."""


class PullEntry(_Part, frozen=True):
    """A slot that is wanted once it has reached ``lead`` above the message's ``min_version``."""

    key_id: Count
    index: Count
    lead: Count


class ValueEntry(_Part, frozen=True):
    """One slot's value within a ``Value``."""

    key_id: Count
    index: Count
    lead: Count
    """The value's version is this much above the message's ``version``."""
    payload_bytes: Count
    encoding: _Encoding = "raw"


class RoundEntry(_Part, frozen=True):
    """Where one slot stands, as seen by the rank that asks."""

    key_id: Count
    index: Count
    next_round: Count
    """First round to which the asking rank has not contributed."""
    version: Count


class Attach(Message, frozen=True):
    """The first message on a link from a worker to a server."""

    kind: ClassVar[Kind] = Kind.ATTACH
    node: NodeId
    incarnation: Number
    view: Number


class Attached(Message, frozen=True):
    """The server takes this worker's messages; its own newest view is ``view``."""

    kind: ClassVar[Kind] = Kind.ATTACHED
    node: NodeId
    incarnation: Number
    view: Number


class Init(Message, frozen=True):
    """First values. No change for a slot that has a value; answered with an ``Ack`` of round 0."""

    kind: ClassVar[Kind] = Kind.INIT
    request: Count
    view: Number
    store: Count
    entries: tuple[InitEntry, ...]

    def payload_size(self) -> int:
        """Return the bytes of all entries."""
        return sum(entry.payload_bytes for entry in self.entries)


class Push(Message, frozen=True):
    """Contributions to one round each of several slots."""

    kind: ClassVar[Kind] = Kind.PUSH
    request: Count
    view: Number
    rank: Count
    """Rank that the contribution counts for; (slot, round, rank) names it, whoever sends it."""
    first_shard: Count
    """The contribution covers shards ``first_shard`` up to, without, ``end_shard``."""
    end_shard: Number
    weight: _Weight
    """Each value counts so often in the sum."""
    mean: bool
    """Divide the sum by the sum of weights when the round is complete."""
    want_value: bool
    """Answer with the new ``Value`` of each slot instead of an ``Ack``."""
    round: Count
    """The least of the entries' push numbers; a number is the round that a push belongs to. It
    stands here and not in them, so that the entries of a step are those of the step before."""
    priority: _Priority
    """Of the values in the answer: higher ones overtake lower ones that wait to leave."""
    entries: tuple[PushEntry, ...]

    def __post_init__(self) -> None:
        if not isfinite(self.weight):
            raise ConfigError(f"a push's weight must be finite, got {self.weight}")
        if self.end_shard <= self.first_shard:
            raise ConfigError(f"a push covers no shard: {self.first_shard} to {self.end_shard}")

    def payload_size(self) -> int:
        """Return the bytes of all entries."""
        return sum(entry.payload_bytes for entry in self.entries)


class Ack(Message, frozen=True):
    """Rounds that are complete (sync), pushes that are applied (async), or slots that are set."""

    kind: ClassVar[Kind] = Kind.ACK
    request: Count
    view: Number
    entries: tuple[SlotRound, ...]
    """Empty: all of the request, as it was sent last or any time before."""


class Pull(Message, frozen=True):
    """Send me these values."""

    kind: ClassVar[Kind] = Kind.PULL
    request: Count
    view: Number
    min_version: Count
    """The least of the versions that the entries wait for."""
    priority: _Priority
    """Of the values in the answer, as in ``Push``."""
    entries: tuple[PullEntry, ...]


class Value(Message, frozen=True):
    """Values that were asked for by a ``Pull`` or a ``Push``; one request may get several."""

    kind: ClassVar[Kind] = Kind.VALUE
    request: Count
    view: Number
    version: Count
    """The least of the entries' versions: rounds in the value (pushes applied, when async)."""
    entries: tuple[ValueEntry, ...]

    def payload_size(self) -> int:
        """Return the bytes of all entries."""
        return sum(entry.payload_bytes for entry in self.entries)


class PullRows(Message, frozen=True):
    """Send me some rows; the payload is their int64 numbers within the slot."""

    kind: ClassVar[Kind] = Kind.PULL_ROWS
    request: Count
    view: Number
    key_id: Count
    index: Count
    min_version: Count
    num_ids: Count

    def payload_size(self) -> int:
        """Return the bytes of the row numbers."""
        return self.num_ids * _ROW_ID_BYTES


class Rows(Message, frozen=True):
    """The rows that were asked for, in the order of the request."""

    kind: ClassVar[Kind] = Kind.ROWS
    request: Count
    view: Number
    key_id: Count
    index: Count
    version: Count
    num_ids: Count
    payload_bytes: Count

    def payload_size(self) -> int:
        """Return the bytes of the rows."""
        return self.payload_bytes


class Command(Message, frozen=True):
    """Something to do for a whole store, in the order of ``number`` per sender."""

    kind: ClassVar[Kind] = Kind.COMMAND
    number: Count
    view: Number
    store: Count
    command: CommandKind
    body: Body
    payload_bytes: Count = 0
    """Raw bytes that belong to the body, such as a piece of saved state."""

    def __post_init__(self) -> None:
        check_plain(self.body)

    def payload_size(self) -> int:
        """Return the bytes that belong to the body."""
        return self.payload_bytes


class CommandDone(Message, frozen=True):
    """The command with this number has taken effect on this server."""

    kind: ClassVar[Kind] = Kind.COMMAND_DONE
    number: Count
    body: Body = msgspec.field(default_factory=dict)
    payload_bytes: Count = 0

    def __post_init__(self) -> None:
        check_plain(self.body)

    def payload_size(self) -> int:
        """Return the bytes that belong to the body."""
        return self.payload_bytes


class Stale(Message, frozen=True):
    """Not done: the message was of an older view. Send it again under ``view``."""

    kind: ClassVar[Kind] = Kind.STALE
    view: Number
    request: Count | None
    entries: tuple[SlotRound, ...] = ()


class Fault(Message, frozen=True):
    """Not done, and asking again does not help. The node that says so goes on."""

    kind: ClassVar[Kind] = Kind.FAULT
    code: FaultCode
    text: Text
    request: Count | None
    entries: tuple[SlotRound, ...] = ()


class Rounds(Message, frozen=True):
    """Where do I stand? Asked by a replacement, for these keys or, when empty, for all."""

    kind: ClassVar[Kind] = Kind.ROUNDS
    request: Count
    view: Number
    key_ids: tuple[Count, ...] = ()
    rank: Count | None = None
    """Asked by a relay for this rank, whose contribution it has sent."""


class RoundsReply(Message, frozen=True):
    """The slots on this server of the keys that were asked about."""

    kind: ClassVar[Kind] = Kind.ROUNDS_REPLY
    request: Count
    view: Number
    entries: tuple[RoundEntry, ...]
