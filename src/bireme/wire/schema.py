"""What all messages are made of: the base class, the numbers, the ranges of their fields.

Called by ``wire.control`` and ``wire.data``. A message is an immutable value; on the wire its
fields are an array in the order of the class, and one field too many or of a wrong type is an
error. Fields are only ever appended, with a new protocol version.
"""

from enum import IntEnum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from bireme.errors import ConfigError

__all__ = (
    "Body",
    "Count",
    "KeyName",
    "Kind",
    "Message",
    "Name",
    "Number",
    "Text",
    "check_plain",
)

Count = Annotated[int, Meta(ge=0, le=2**62)]
"""A size, an offset or a number that starts from 0."""

Number = Annotated[int, Meta(ge=1, le=2**62)]
"""A number that starts from 1, such as a view or an incarnation."""

Name = Annotated[str, Meta(max_length=256)]
"""A host, an address, an encoding."""

Text = Annotated[str, Meta(max_length=65_536)]
"""Words for people: reasons and error messages."""

KeyName = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[str, Meta(max_length=4096)]
"""The user's name of a key."""

Body = dict[str, object]
"""Plain data: nested dicts and lists of None, bool, int, float, str and bytes."""


_MAX_DEPTH = 16


class Kind(IntEnum):
    """The number of each message, the ``kind`` of a frame's header. Never used again once given."""

    JOIN = 1
    JOINED = 2
    REFUSED = 3
    START = 4
    VIEW_CHANGE = 5
    HEARTBEAT = 6
    HEARTBEAT_ACK = 7
    DECLARE = 8
    DECLARED = 9
    BARRIER = 10
    BARRIER_DONE = 11
    LEAVE = 12
    LEAVE_ACK = 13
    ABORT = 14
    SHUTDOWN = 15
    STATUS_REQUEST = 16
    STATUS = 17
    FAULT = 18
    PROBE = 19
    PROBED = 20
    ATTACH = 32
    ATTACHED = 33
    INIT = 34
    PUSH = 35
    ACK = 36
    PULL = 37
    VALUE = 38
    PULL_ROWS = 39
    ROWS = 40
    COMMAND = 41
    COMMAND_DONE = 42
    STALE = 43
    ROUNDS = 44
    ROUNDS_REPLY = 45
    HANDOVER = 46
    JOINT_PUSH = 47
    DECLINED = 48
    PING = 49
    PONG = 50
    FETCH = 51


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of every message; ``kind`` is its number on the wire."""

    kind: ClassVar[Kind]

    def payload_size(self) -> int:
        """Return the bytes of payload that the message says follow it; 0 for most."""
        return 0


def check_plain(body: Body) -> None:
    """Refuse what is not plain data: other types, and nesting deeper than 16.

    Raises:
        ConfigError: ``body`` holds such a thing.

    Example:
        >>> check_plain({"lr": 0.1, "betas": [0.9, 0.999]})
        >>> check_plain({"lr": 1j})
        Traceback (most recent call last):
        bireme.errors.ConfigError: a message body takes plain data only; got a complex
    """
    level: list[object] = [body]
    for _ in range(_MAX_DEPTH):
        inside: list[object] = []
        for value in level:
            inside += _children(value)
        if not inside:
            return
        level = inside
    raise ConfigError(f"a message body may nest {_MAX_DEPTH} deep at most")


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return list(value.values())
        raise ConfigError(f"the keys of a message body are strings; got {list(value)[:4]!r}")
    if isinstance(value, list | tuple):
        return list(value)
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return []
    raise ConfigError(f"a message body takes plain data only; got a {type(value).__name__}")
