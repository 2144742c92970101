"""Messages between any node and the scheduler: joining, membership, barriers, keys, the end.

Constructed and handled by ``core``; encoded by ``wire.codec``. None of them has a payload.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from bireme.types.choices import Consistency, DeathPolicy, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import NodeId, Role
from bireme.types.shards import check_shards
from bireme.wire.schema import Body, Count, KeyName, Kind, Message, Name, Number, Text, check_plain

__all__ = (
    "Abort",
    "Barrier",
    "BarrierDone",
    "Declare",
    "Declared",
    "Heartbeat",
    "HeartbeatAck",
    "JobConfig",
    "Join",
    "Joined",
    "KeyDecl",
    "KeyPlacement",
    "Leave",
    "LeaveAck",
    "Lost",
    "NodeInfo",
    "Refused",
    "Shutdown",
    "SlotPlacement",
    "Start",
    "Status",
    "StatusRequest",
    "ViewChange",
)

_Seconds = Annotated[float, Meta(ge=0)]
_Positive = Annotated[float, Meta(gt=0)]
_AtLeastZero = Annotated[float, Meta(ge=0)]
_Addresses = Annotated[tuple[Name, ...], Meta(max_length=16)]


class _Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of the values inside messages."""


class NodeInfo(_Part, frozen=True):
    """A member of the job and where it listens."""

    node: NodeId
    incarnation: Number
    host: Name
    pid: Count
    addresses: _Addresses
    bandwidth: _Positive = 1.0
    """Share of the bytes that a server takes, relative to the other servers."""
    link_mbps: _AtLeastZero = 0.0
    """Speed of its machine's link, each way: stated, or measured; 0 when it is not known."""


class Lost(_Part, frozen=True):
    """A member that died or fell silent."""

    node: NodeId
    incarnation: Number
    host: Name
    reason: Text


class JobConfig(_Part, frozen=True):
    """What the scheduler settles for everyone; times in seconds, sizes in bytes."""

    num_workers: Number
    num_servers: Number
    num_shards: Number
    """Leaves of the canonical sum; one per worker unless the job is elastic."""
    death_policy: DeathPolicy = DeathPolicy.ABORT
    slice_bytes: Number = 1 << 20
    start_timeout_s: _Positive = 60.0
    barrier_timeout_s: _Positive = 300.0
    push_timeout_s: _Positive = 300.0
    pull_timeout_s: _Positive = 300.0
    exit_timeout_s: _Positive = 30.0
    replace_timeout_s: _Positive = 300.0
    resend_timeout_s: _Positive = 5.0
    heartbeat_interval_s: _Positive = 0.25
    heartbeat_timeout_s: _Positive = 20.0
    max_payload_bytes: Number = 1 << 30
    bundle_bytes: Number = 1 << 20
    """Slots for one receiver travel together in messages of about this size."""
    relay: bool = True
    """One worker of each machine pushes for all of it, where that spares a link bytes."""
    link_probe: bool = True
    """Links whose speed nobody stated are measured before the job begins."""

    def __post_init__(self) -> None:
        check_shards(self.num_workers, self.num_shards)


class Join(Message, frozen=True):
    """A node asks to become a member. Sent again until it is answered."""

    kind: ClassVar[Kind] = Kind.JOIN
    role: Role
    rank: Count | None
    """Rank from the launcher; ``None`` lets the scheduler give the lowest free one."""
    host: Name
    pid: Count
    addresses: _Addresses
    num_workers: Number
    """What the launcher told this node; the scheduler refuses a node of another job's size."""
    num_servers: Number
    software: Name = ""
    """Version of the package, for the refusal of one that cannot work with the scheduler's."""
    incarnation_hint: Count = 0
    """Incarnation this process had before it lost its link to the scheduler; 0 for a new one."""
    bandwidth: _Positive = 1.0
    link_mbps: _AtLeastZero = 0.0


class Joined(Message, frozen=True):
    """The scheduler took the node in."""

    kind: ClassVar[Kind] = Kind.JOINED
    node: NodeId
    incarnation: Number
    heartbeat_interval_s: _Positive
    heartbeat_timeout_s: _Positive


class Refused(Message, frozen=True):
    """The scheduler did not take the node in; asking again does not help."""

    kind: ClassVar[Kind] = Kind.REFUSED
    reason: Text


class Start(Message, frozen=True):
    """The job is complete: begin. Also the first thing that a replacement hears."""

    kind: ClassVar[Kind] = Kind.START
    view: Number
    nodes: tuple[NodeInfo, ...]
    config: JobConfig
    replacement: bool = False
    """The receiver joins a job that runs: it asks ``Rounds`` and skips the start barrier."""


class ViewChange(Message, frozen=True):
    """The membership changed; from now on every data message carries ``view``."""

    kind: ClassVar[Kind] = Kind.VIEW_CHANGE
    view: Number
    nodes: tuple[NodeInfo, ...]
    """Everyone who is alive in this view."""
    lost: tuple[Lost, ...] = ()
    joined: tuple[NodeInfo, ...] = ()
    left: tuple[NodeId, ...] = ()
    """Workers that are done and left in good order."""


class Heartbeat(Message, frozen=True):
    """I am alive, and this is the newest view I know."""

    kind: ClassVar[Kind] = Kind.HEARTBEAT
    sent_s: float
    """Sender's clock; given back unchanged."""
    view: Count = 0


class HeartbeatAck(Message, frozen=True):
    """The answer to a heartbeat; the scheduler is alive too."""

    kind: ClassVar[Kind] = Kind.HEARTBEAT_ACK
    sent_s: float
    view: Count = 0


class KeyDecl(_Part, frozen=True):
    """A key that a worker is about to use."""

    name: KeyName
    shape: Annotated[tuple[Count, ...], Meta(max_length=64)]
    dtype: DType
    layout: Layout = Layout.DENSE
    splittable: bool = True
    """Whether the key may be cut over several servers; not when its optimizer needs all of it."""
    consistency: Consistency = Consistency.SYNC
    staleness: Count = 0
    """For ``bounded``: rounds that a worker may be ahead of the slowest."""


class Declare(Message, frozen=True):
    """A worker names keys; any worker, in any order, as often as it likes."""

    kind: ClassVar[Kind] = Kind.DECLARE
    request: Count
    store: Count
    """Number of the store within the job, in order of creation; key names are its own."""
    keys: tuple[KeyDecl, ...]


class SlotPlacement(_Part, frozen=True):
    """Where one slot of a key lives; offset and length in elements of the flattened value."""

    server: Count
    offset: Count
    length: Count


class KeyPlacement(_Part, frozen=True):
    """The id of a key and its slots; a slot's index is its position in ``slots``."""

    key_id: Count
    name: KeyName
    slots: tuple[SlotPlacement, ...]
    new: bool
    """Nobody had declared the key before."""


class Declared(Message, frozen=True):
    """The answer to a ``Declare``, its keys in the same order."""

    kind: ClassVar[Kind] = Kind.DECLARED
    request: Count
    keys: tuple[KeyPlacement, ...]


class Barrier(Message, frozen=True):
    """I have reached the ``number``-th barrier called ``name``."""

    kind: ClassVar[Kind] = Kind.BARRIER
    name: Name
    number: Count


class BarrierDone(Message, frozen=True):
    """All live workers have reached the barrier."""

    kind: ClassVar[Kind] = Kind.BARRIER_DONE
    name: Name
    number: Count


class Leave(Message, frozen=True):
    """A worker is done; its links may close without anybody counting it as dead."""

    kind: ClassVar[Kind] = Kind.LEAVE
    reason: Text = ""


class LeaveAck(Message, frozen=True):
    """The scheduler knows that the worker left."""

    kind: ClassVar[Kind] = Kind.LEAVE_ACK


class Abort(Message, frozen=True):
    """The job ends now with ``exit_code``, because of ``culprit``."""

    kind: ClassVar[Kind] = Kind.ABORT
    culprit: NodeId | None
    host: Name
    reason: Text
    exit_code: Annotated[int, Meta(ge=1, le=255)]


class Shutdown(Message, frozen=True):
    """All workers have left in good order: servers end with exit code 0."""

    kind: ClassVar[Kind] = Kind.SHUTDOWN


class StatusRequest(Message, frozen=True):
    """Tell me how you are; answered by any node, also to one that is no member."""

    kind: ClassVar[Kind] = Kind.STATUS_REQUEST
    request: Count


class Status(Message, frozen=True):
    """A node's report on itself: plain data for people and tools."""

    kind: ClassVar[Kind] = Kind.STATUS
    request: Count
    report: Body

    def __post_init__(self) -> None:
        check_plain(self.report)
