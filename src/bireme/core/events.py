"""What can happen to a role: the only inputs of the state machines.

A shell turns sockets and user calls into these values and feeds them to ``handle(event, now_s)``.
Links are numbered by the shell; a number is never used again within a process, so what still
arrives from a dead incarnation can never be taken for its replacement. Calls of a worker's user
are events too; they are in :mod:`bireme.core.calls`.
"""

from typing import TypeAlias

import msgspec

from bireme.types.nodes import NodeId
from bireme.wire.messages import Message

__all__ = ("ConnectFailed", "Event", "Linked", "Lost", "Received", "Tick")


class Linked(msgspec.Struct, frozen=True, gc=False):
    """A connection that the role asked for by :class:`~bireme.core.actions.Connect` is up.

    A link that a peer opened is not announced: its first ``Received`` is its announcement.
    """

    link: int
    """The shell's number of the link, > 0, never used twice in a process."""

    node: NodeId
    """The node that was to be reached."""


class ConnectFailed(msgspec.Struct, frozen=True, gc=False):
    """A connection that the role asked for could not be made."""

    node: NodeId
    """The node that was to be reached."""

    reason: str
    """What the transport says, for messages."""


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message has arrived whole.

    The payload is opaque to the core. The shell may reuse its memory as soon as the actions of
    this event are done, unless one of them is :class:`~bireme.core.actions.Hold` of this payload.
    """

    link: int
    """The link it came by."""

    message: Message
    """The decoded message."""

    payload: object = None
    """The raw bytes that follow the message; ``None`` when there are none."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """A link is gone: closed by the peer, reset, or timed out. Nothing comes from it any more."""

    link: int
    """The link."""

    reason: str
    """What the transport says, for messages."""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Nothing happened, but time went on; due at ``next_deadline_s()`` of the role."""


Event: TypeAlias = Linked | ConnectFailed | Received | Lost | Tick
