"""What a role wants done: the only outputs of the state machines.

``handle(event, now_s)`` returns a list of these, to be carried out in order. A shell that has
closed a link ignores a ``Send`` or ``Close`` for it.
"""

from typing import TypeAlias

import msgspec

from bireme.core.bunches import Bunch
from bireme.core.neighbours import Neighbours
from bireme.errors import BiremeError
from bireme.types.nodes import NodeId
from bireme.wire.messages import JobConfig, Message, Value

__all__ = (
    "Action",
    "Close",
    "Complete",
    "Connect",
    "Deliver",
    "EndJob",
    "Fail",
    "Fill",
    "Hold",
    "Log",
    "OpenRelay",
    "Pace",
    "Release",
    "Send",
)


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Open a link to ``node``; answer with ``Linked`` or ``ConnectFailed``."""

    node: NodeId
    """Whom to reach."""

    addresses: tuple[str, ...]
    """Where it listens, as it told the scheduler; empty for the scheduler itself, whose address
    the shell knows."""


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message by a link.

    Each part of ``payload`` is a handle that the shell (or its ``SlotValues``) made; it must stay
    unchanged until it has gone out.
    """

    link: int
    """The link."""

    message: Message
    """What to send."""

    payload: tuple[object, ...] = ()
    """Handles of the raw bytes that follow, back to back."""

    priority: int = 0
    """Higher goes first among what is queued for this link."""


class Fill(msgspec.Struct, frozen=True, gc=False):
    """Send a message with as many bytes of no meaning as its ``payload_size`` says."""

    link: int
    """The link."""

    message: Message
    """What to send."""


class Pace(msgspec.Struct, frozen=True, gc=False):
    """This machine's link is known to be so fast; from now on what is sent should follow that."""

    bytes_per_s: float
    """Each way, > 0."""
    fastest_bytes_per_s: float
    """Of the fastest link that any machine of the job has."""
    gives_way: bool = False
    """Whether what a worker of this machine sends goes first."""


class OpenRelay(msgspec.Struct, frozen=True):
    """Be the relay of this machine as well.

    Run a ``RelayCore`` where a ``Connect`` to this node's own name and addresses reaches it, until
    this node's part in the job is over.
    """

    neighbours: Neighbours
    """Whom it serves, and which servers it speaks to."""

    config: JobConfig
    """What the scheduler settled."""

    incarnation: int
    """Of this node."""

    view: int
    """The newest one."""


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close a link after what was queued for it has gone out; no ``Lost`` is expected for it."""

    link: int
    """The link."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Keep the received payload of this event until ``Release`` names the same object."""

    payload: object
    """The ``payload`` of the ``Received`` event."""


class Release(msgspec.Struct, frozen=True, gc=False):
    """The core needs this payload no more.

    For a payload that a call handed in: once for each time it was handed in, when its push is
    acknowledged or given up. A frame that still carries it may be under way, so the shell frees
    the memory when both this action and the transport's notice of the last send have come.
    """

    payload: object
    """The handle from a call's entry, or a held payload."""


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Values for a pull or pushpull have arrived; comes before the call's ``Complete``.

    A shell that received the payload straight into its destination has nothing to do.
    """

    call: int
    """The call that asked."""

    entries: tuple[tuple[int, int, int, int, int], ...]
    """``(key_id, index, version, offset_bytes, size_bytes)`` of each value; a place in
    ``payload``. ``version`` is the number of rounds in the value (pushes applied, when async).
    Empty when there is a ``bunch``."""

    payload: object
    """The payload of the message that brought them."""

    bunch: Bunch | None = None
    """All of the payload is the values of this bunch's slots, in its order."""

    message: Value | None = None
    """What it came with, when there is a ``bunch`` or something is not encoded as ``raw``."""


class Complete(msgspec.Struct, frozen=True, gc=False):
    """A call is done."""

    call: int
    """The call."""

    result: object = None
    """What its class in :mod:`bireme.core.calls` says."""


class Fail(msgspec.Struct, frozen=True, gc=False):
    """A call has failed; nothing more comes for it."""

    call: int
    """The call."""

    error: BiremeError
    """To be raised in the caller. ``WaitTimeout`` names who is missing."""


class EndJob(msgspec.Struct, frozen=True, gc=False):
    """This node's part in the job is over: close everything, then leave with ``exit_code``."""

    exit_code: int
    """0 after a clean end, else not 0."""

    text: str
    """Why, for the log and the error; names the culprit when there is one."""


class Log(msgspec.Struct, frozen=True, gc=False):
    """Write a line to the log."""

    level: str
    """``debug``, ``info``, ``warning`` or ``error``."""

    text: str
    """One line, without the node's name (the shell prefixes it)."""


Action: TypeAlias = (
    Connect
    | OpenRelay
    | Pace
    | Send
    | Fill
    | Close
    | Hold
    | Release
    | Deliver
    | Complete
    | Fail
    | EndJob
    | Log
)
