"""What a launcher and the agents on its hosts say to each other, and how it is framed. Pure.

An agent reads from its standard input and writes to its standard output. Whatever a remote shell
prints before the agent starts is passed over: frames begin behind a mark.
"""

import os
import struct
from collections.abc import Mapping

import msgspec

from bireme.errors import RemoteProtocolError
from bireme.launch.environment import Meeting
from bireme.types.nodes import NodeId

__all__ = (
    "MARK",
    "Asked",
    "Begin",
    "Bye",
    "Ended",
    "Failed",
    "Files",
    "FromAgent",
    "Go",
    "Lines",
    "Pulse",
    "Ready",
    "Send",
    "Start",
    "StartAgain",
    "ToAgent",
    "Unframer",
    "frame",
    "packed",
    "unpacked",
)

MARK = b"\0bireme agent 1\n"
"""What an agent writes first. No program greets like this."""

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 256 << 20


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One process, as bytes: neither names nor values need be text."""

    node: NodeId
    command: tuple[bytes, ...]
    env: dict[bytes, bytes]


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """To an agent, once: what its host has to do. It gets ready, and starts nothing yet."""

    host: str
    """The name by which the user knows the host."""
    workdir: str
    base: dict[bytes, bytes]
    """What every process inherits."""
    starts: tuple[Start, ...]
    has_scheduler: bool
    has_store: bool
    address: str
    """By which others reach the scheduler here, where the user has said so and no launcher has
    reached the host."""
    peer: str
    """Another host of the job; empty where there is none, and loopback is enough."""
    is_open: bool
    """Whether the job's links ask for no proof, so that nobody may listen everywhere."""
    grace_s: float = 5.0
    """How long processes have after SIGTERM when the launcher is gone."""
    sync_dir: str = ""
    """Where files that follow are unpacked before anything else; processes then start there."""
    threads: int
    """The size of thread pools; 0: this host's cores, shared."""


class Files(msgspec.Struct, frozen=True, tag="files"):
    """To an agent, after ``Begin`` with a ``sync_dir``: a piece of the archive to unpack there."""

    data: bytes
    is_last: bool


class Go(msgspec.Struct, frozen=True, tag="go"):
    """To an agent, once, when all are ready: start the processes."""

    meeting: Meeting


class Send(msgspec.Struct, frozen=True, tag="send"):
    """To an agent: send a signal to these processes and to what they have started."""

    nodes: tuple[NodeId, ...]
    signum: int


class StartAgain(msgspec.Struct, frozen=True, tag="again"):
    """To an agent: start a process that has ended once more."""

    node: NodeId


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """To an agent: leave. The end of its input means the same."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """From an agent: its processes can start. Ports are 0 where they are not asked for."""

    version: str
    python: str
    hostname: str
    address: str
    """By which others reach the host; empty where it could not find out."""
    launcher: str = ""
    """The address from which the launcher has reached it, if it has."""
    scheduler_port: int = 0
    store_port: int = 0
    engine_port: int = 0
    packages: dict[str, str] = {}
    """Versions of what is installed there."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From an agent, instead of ``Ready`` or after it: it cannot do its part, and leaves."""

    text: str
    version: str = ""
    """The package's there: of another one, nothing else may be understood."""


class Lines(msgspec.Struct, frozen=True, tag="lines"):
    """From an agent: what a process has printed."""

    node: NodeId
    lines: list[str]
    is_error: bool


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """From an agent: a process has ended, and whatever it had started with it."""

    node: NodeId
    status: int


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """From an agent: somebody on its host asks the job to end by this signal."""

    signum: int


class Pulse(msgspec.Struct, frozen=True, tag="pulse"):
    """From either end, every few seconds: it is there."""


ToAgent = Begin | Files | Go | Send | StartAgain | Bye | Pulse
FromAgent = Ready | Failed | Lines | Ended | Asked | Pulse


def frame(message: ToAgent | FromAgent) -> bytes:
    """Return a message as bytes."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class Unframer:
    r"""Turns bytes into messages.

    Args:
        kind: ``ToAgent`` or ``FromAgent``.
        has_mark: Whether the stream begins with whatever a shell prints, and the mark.

    Example:
        >>> unframer = Unframer(FromAgent, has_mark=True)
        >>> unframer.feed(b"Welcome!\n" + MARK + frame(Pulse())), unframer.noise
        ([Pulse()], b'Welcome!\n')
    """

    def __init__(self, kind: object, *, has_mark: bool) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._data = bytearray()
        self._waits_for_mark = has_mark
        self.noise = b""
        """The last of what came before the mark."""

    @property
    def has_begun(self) -> bool:
        """Whether the other side has been heard."""
        return not self._waits_for_mark

    def feed(self, data: bytes) -> list[ToAgent | FromAgent]:
        """Return the messages that ``data`` completes.

        Raises:
            RemoteProtocolError: The bytes are no messages.
        """
        self._data += data
        if self._waits_for_mark and not self._found_mark():
            return []
        messages = []
        start = 0
        while len(self._data) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, start)
            if length > _MOST_BYTES:
                raise RemoteProtocolError(f"a message of {length} bytes is none of an agent's")
            end = start + _LENGTH.size + length
            if len(self._data) < end:
                break
            messages.append(self._decode(bytes(self._data[start + _LENGTH.size : end])))
            start = end
        del self._data[:start]
        return messages

    def _found_mark(self) -> bool:
        before, mark, after = bytes(self._data).partition(MARK)
        self.noise = before[-4096:]
        if mark:
            self._waits_for_mark = False
            self._data = bytearray(after)
        else:
            self._data = bytearray(before[-4096:])
        return bool(mark)

    def _decode(self, body: bytes) -> ToAgent | FromAgent:
        try:
            message: ToAgent | FromAgent = self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise RemoteProtocolError(f"a message cannot be read: {error}") from error
        return message


def packed(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return an environment as bytes, as the system has it."""
    return {os.fsencode(name): os.fsencode(text) for name, text in env.items()}


def unpacked(env: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the environment that ``packed`` was given.

    Example:
        >>> unpacked(packed({"NAME": "two words"}))
        {'NAME': 'two words'}
    """
    return {os.fsdecode(name): os.fsdecode(text) for name, text in env.items()}
