"""What every transport promises: frames, links and the events that a poll returns.

A transport moves frames and knows no messages: a frame is a head (bytes made by `bireme.wire`) and
a payload (raw memory). The node room sends and polls; `tests/conformance/test_transport.py` holds
every implementation to the guarantees written here.
"""

import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from bireme.errors import ConfigError
from bireme.transport.pacing import Pacing
from bireme.wire.limits import DEFAULT_LIMITS, Limits

__all__ = (
    "AT_ONCE_BYTES",
    "CONTROL_PRIORITY",
    "Arrived",
    "Buffer",
    "Closed",
    "Express",
    "Frame",
    "Identity",
    "Link",
    "LinkEvent",
    "LinkStatistics",
    "Memory",
    "Opened",
    "PayloadSink",
    "ReceivedFrame",
    "Transport",
    "TransportOptions",
)

CONTROL_PRIORITY = 1 << 30
"""For frames that must not wait behind data: heartbeats, view changes, aborts."""

AT_ONCE_BYTES = 48 << 10
"""Up to here a payload may come by one read with its head, and leave by one write."""

Identity = Mapping[str, str | int]
"""Who a peer says it is, proved by the handshake: for example role, rank, host, incarnation."""


class Frame:
    """One frame to send. It is not changed by sending, so several links may send the same one.

    Args:
        head: The encoded message, as `bireme.wire.codec.encode` returns it.
        payload: C-contiguous memory that follows the head on the wire, back to back. It must not
            change until ``on_sent`` of `Link.send` has been called.

    Example:
        >>> frame = Frame(b"head", [bytearray(8), bytearray(4)])
        >>> frame.payload_bytes
        12
    """

    __slots__ = ("head", "payload", "payload_bytes")

    def __init__(self, head: bytes, payload: Sequence[memoryview | bytes | bytearray] = ()) -> None:
        self.head = head
        views = [memoryview(piece) for piece in payload]
        self.payload = [view.cast("B") for view in views if view.nbytes]
        self.payload_bytes = sum([piece.nbytes for piece in self.payload])

    @classmethod
    def of_bytes(cls, head: bytes, payload: list[memoryview], payload_bytes: int) -> "Frame":
        """Return a frame whose payload consists of plain bytes, in pieces that are not empty."""
        frame = cls.__new__(cls)
        frame.head = head
        frame.payload = payload
        frame.payload_bytes = payload_bytes
        return frame


class ReceivedFrame:
    """One frame that arrived. Whoever gets it calls `release` once, when it has read the payload.

    ``payload`` is memory of the transport, or the sink's destination. A transport may show the same
    memory to several receivers, so it is read and never written to. After `release` the transport
    reuses it: views, tensors and arrays made from it show other data then.

    Example:
        >>> frame = ReceivedFrame(b"head", memoryview(b"abc"), lambda frame: print("returned"))
        >>> frame.release()
        returned
    """

    __slots__ = ("_give_back", "_keep", "head", "payload")

    def __init__(
        self,
        head: bytes,
        payload: memoryview,
        give_back: Callable[["ReceivedFrame"], None] | None = None,
        keep: "Callable[[ReceivedFrame], Buffer] | None" = None,
    ) -> None:
        self.head = head
        self.payload = payload
        self._give_back = give_back
        self._keep = keep

    def release(self) -> None:
        """Give the payload's memory and its credit back; a second call does nothing.

        May be called from any thread, and after the link or the transport has closed.
        """
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back(self)

    def adopt(self) -> "Buffer | None":
        """Release the frame, but keep the payload's memory, to write to it and to send from it.

        Returns:
            The memory; ``None``, with nothing changed, where others may see it as well.

        Example:
            >>> ReceivedFrame(b"head", memoryview(b"abc")).adopt() is None
            True
        """
        keep = self._keep
        if keep is None or self._give_back is None:
            return None
        self._give_back = None
        return keep(self)


class Memory(Protocol):
    """Counted memory of a payload."""

    def retain(self) -> None:
        """One more needs it."""

    def release(self) -> None:
        """One fewer needs it."""


class Buffer(Protocol):
    """Memory from `Transport.allocate`, from which frames leave with the fewest copies."""

    @property
    def view(self) -> memoryview:
        """The memory, writable, format ``B``, aligned to 64 bytes."""

    def release(self) -> None:
        """Give the memory back once every frame sent from it has been delivered or dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatistics:
    """Counts of one link since it opened."""

    frames_sent: int = 0
    frames_received: int = 0
    sent_bytes: int = 0
    """Heads and payloads handed to the system or to shared memory."""
    received_bytes: int = 0
    queued_frames: int = 0
    """Frames that `Link.send` has taken and that are not on their way yet."""
    queued_bytes: int = 0
    unreleased_bytes: int = 0
    """Payload that arrived here and has not been released."""
    outstanding_bytes: int = 0
    """Payload sent whose credit has not come back."""


class Link(ABC):
    """A connection to one peer.

    Guarantees:
        Order: frames of one priority arrive in the order of the `send` calls; of frames that wait,
        the highest priority leaves first. A frame under way is not cut.
        Delivery: each frame arrives whole and once, or the link closes.
        Threads: every method may be called from any thread, and none blocks on the peer.

    Attributes:
        peer: What the peer's transport said about itself; empty for a peer that said nothing.
        remote: The peer's address, for messages to people.
        accepted: Whether the peer opened the link.
        context: Free for the owner of the transport; never read here.
    """

    peer: Identity
    remote: str
    accepted: bool
    context: object = None

    @abstractmethod
    def send(
        self,
        frame: Frame,
        priority: int = 0,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        """Queue ``frame``, and write as much as the link takes now from this thread.

        Args:
            frame: The frame. Its payload is not copied before it leaves.
            priority: Higher leaves earlier among frames that wait.
            on_sent: Called once, from any thread and with no lock held, when the payload's memory
                may change again: it has left, or the link has closed and dropped it. It must not
                raise. Where payloads are not copied (inproc; shared memory from
                `Transport.allocate`) this is when the receiver has released it, and sends or
                polls again.

        Raises:
            PeerLost: The link has closed. ``on_sent`` is not called then.
            LocalProtocolError: The head is none, states another payload size than the frame has, or
                exceeds the limits.
        """

    def send_at_once(
        self, head: bytes, payload: list[memoryview], payload_bytes: int, memory: Memory
    ) -> bool:
        """Write a small frame from this thread if nothing waits to leave before it.

        Args:
            head: As of `Frame`; it must be right.
            payload: As of `Frame`, at most `AT_ONCE_BYTES`.
            payload_bytes: Its size.
            memory: The payload's. It is retained only where the system has not taken all of it,
                until it has or the link has closed.

        Returns:
            Whether the link has taken the frame; else nothing has changed, and `send` is for it.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Close after the queued frames have left, or after the linger limit. Never blocks.

        Frames that arrive from now on are dropped. Both sides get one `Closed`. A second call does
        nothing.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Close at once, dropping the queued frames."""

    @abstractmethod
    def statistics(self) -> LinkStatistics:
        """Return the counts so far."""

    def __repr__(self) -> str:
        """Return the peer's address and what it said about itself."""
        peer = " ".join(f"{name}={value}" for name, value in self.peer.items())
        return f"<{type(self).__name__} {self.remote} {peer}>"


class Opened(NamedTuple):
    """A link is ready: the first event of every link, whichever side opened it."""

    link: Link


class Arrived(NamedTuple):
    """A whole frame is here; `ReceivedFrame.release` it."""

    link: Link
    frame: ReceivedFrame


class Closed(NamedTuple):
    """A link is gone: its last event, and exactly one.

    ``graceful`` tells a close on purpose, by either side, from a link that was lost.
    """

    link: Link
    reason: str
    graceful: bool


LinkEvent = Opened | Arrived | Closed

PayloadSink = Callable[[Link, bytes, int], memoryview | None]
"""``sink(link, head, payload_bytes)`` names the memory for a payload about to arrive, or None. A
link does not ask about a payload that has come together with its head."""

Express = Callable[[Link, bytes, memoryview], bool]
"""``express(link, head, payload)`` takes a whole frame where it lies, and returns whether it did;
the payload is valid during the call only. It must not raise, nor call `Transport.poll`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """Limits and secrets of a transport; the same for all its links.

    Raises:
        ConfigError: A limit is not positive.
    """

    secret: bytes = field(default=b"", repr=False)
    """The job's secret. Empty: peers are not challenged, and only local addresses may listen."""
    is_open: bool = False
    """Listen beyond this machine even without a secret: in closed networks."""
    job: str = ""
    """The job's id: peers of another job are refused, so that jobs on one host do not mix."""
    identity: Identity = field(default_factory=dict)
    """What this side tells its peers about itself after the proof."""
    window_bytes: int = 16 << 20
    """Payload that a peer may have under way to here, per link, before frames are released."""
    shared_bytes: int = 1 << 30
    """How much shared memory may be used for what goes to all local peers together; beyond that,
    payloads pass through sockets."""
    limits: Limits = DEFAULT_LIMITS
    """The largest head and payload, both ways, once a peer has proved itself."""
    handshake_timeout_s: float = 5.0
    max_unproven: int = 64
    """Accepted connections that may be in their handshake; the oldest gives way to a new one."""
    linger_s: float = 5.0
    """How long a closing link may take to send what is queued."""
    tls_server: ssl.SSLContext | None = None
    """For TCP links that peers open; must ask for and verify the peer's certificate to keep
    strangers out before they reach the handshake."""
    tls_client: ssl.SSLContext | None = None
    """For TCP links that this side opens; must verify the peer's certificate."""

    def __post_init__(self) -> None:
        """Check every limit."""
        for name in (
            "window_bytes",
            "handshake_timeout_s",
            "max_unproven",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be > 0, got {getattr(self, name)}")


class Transport(ABC):
    """Opens links and reports what happens on them.

    Guarantees:
        Threads: `poll` may be called by any thread, one at a time (a second one waits its turn);
        every other method may be called at the same time as `poll`.
        Events: per link `Opened`, then any number of `Arrived`, then `Closed`.
        Peers: bytes from a peer that has not proved itself, or that are no frames, close that
        connection and disturb nothing else.
    """

    sink: PayloadSink | None = None
    """Asked, from the thread that polls, where a payload shall be received."""

    express: Express | None = None
    """Offered, by the thread that is in `poll`, each small frame that has come whole while no
    event waits to be returned. What it takes is not returned as an event, and counts as released;
    `poll` goes on. A transport need not offer anything."""

    returns_soon = False
    """Set by ``express`` to have the `poll` under way return when the step at hand is done."""

    @abstractmethod
    def listen(self, address: str) -> str:
        """Accept links at ``address`` and return the address that peers can connect to.

        A port of 0 (or an empty name) lets the system choose.

        Raises:
            ConfigError: The address is malformed, taken, of another transport, or reaches beyond
                this machine while there is no secret.
        """

    @abstractmethod
    def connect(self, address: str, timeout_s: float) -> Link:
        """Open a link; a refused connection is tried again until the limit.

        Other links go on meanwhile: what happens on them is returned by the next `poll`.

        Raises:
            PeerLost: Nobody answered in ``timeout_s``; names the address and the last reason.
            AuthError: The peer refused the secret or the job, or did not prove its own.
            ConfigError: The address is malformed or of another transport.
        """

    @abstractmethod
    def poll(self, timeout_s: float | None) -> list[LinkEvent]:
        """Wait until something happens, drive the links, and return the events in order.

        Args:
            timeout_s: Longest wait; None waits for an event or `wake`, 0 does not wait.

        Raises:
            StateError: The transport is closed.
        """

    def pace(self, pacing: Pacing) -> None:  # noqa: B027 (most have nothing to do)
        """Take what is known of this machine's network link by now.

        Below some GB/s the system is given so much of what is to be sent at a time as passes in a
        few milliseconds, so that frames of other links and of higher priority need not wait behind
        it. Called by the thread that polls, or while nobody does. A transport whose frames cross no
        network has nothing to do.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make the `poll` under way, or else the next one, return at once."""

    @abstractmethod
    def close(self) -> None:
        """Close every link and listener and free every descriptor. Idempotent.

        Queued frames get `TransportOptions.linger_s` to leave. Events not yet polled are lost.
        """

    @abstractmethod
    def allocate(self, size_bytes: int) -> Buffer:
        """Return memory from which a frame leaves with the fewest copies. Never blocks."""

    def __enter__(self) -> Self:
        """Return the transport itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
