"""A link over a connected stream socket: TCP, TLS or Unix. Called by `SocketTransport`.

It joins a `Sender`, which any thread may use, and a `FrameReader` for the polling thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bireme.errors import BiremeError, PeerLost, RemoteProtocolError
from bireme.transport.auth import Session
from bireme.transport.base import (
    Arrived,
    Buffer,
    Closed,
    Express,
    Frame,
    Link,
    LinkEvent,
    LinkStatistics,
    Opened,
    PayloadSink,
    ReceivedFrame,
    TransportOptions,
)
from bireme.transport.credit import ReceiveWindow
from bireme.transport.framing import (
    FIRST_TRANSPORT_KIND,
    TransportKind,
    check_frame,
    read_credit,
    sink_target,
    transport_head,
    write_credit,
)
from bireme.transport.pool import BufferPool, PooledBuffer
from bireme.transport.reader import FrameReader, Staging
from bireme.transport.seal import Seal
from bireme.transport.sender import Sender
from bireme.transport.streams import WOULD_BLOCK, Stream
from bireme.wire.header import HEADER_BYTES

__all__ = ("LinkOwner", "SocketLink")

_SMALL_BYTES = 2048
"""Up to here fresh memory costs less than what is used again."""

_READS_PER_TURN = 2
"""After so many reads the poller hands on what has come, and looks at the other links: until then
all of it takes memory."""


class LinkOwner(Protocol):
    """What a link needs of its transport. Any thread may call `soon`, the polling one the rest."""

    options: TransportOptions
    sink: PayloadSink | None
    pool: BufferPool
    events: deque[LinkEvent]
    """Reported, and not yet returned by `Transport.poll`."""
    taking: Express | None
    """Who is to be offered whole frames now."""

    def soon(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the polling thread, soon."""

    def before_sleep(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the polling thread, before it waits for sockets again."""

    def emit(self, event: LinkEvent) -> None:
        """Report an event."""

    def watch(self, link: "SocketLink", *, writing: bool) -> None:
        """Watch the link's socket, for writing too or not."""

    def limit(self, link: "SocketLink", deadline_s: float) -> None:
        """Call ``link.expired()`` at that time, unless it is forgotten before."""

    def forget(self, link: "SocketLink") -> None:
        """Watch no more: the socket is about to be closed."""


class SocketLink(Link):
    """See `Link`.

    Args:
        owner: The transport.
        stream: The connected socket, past its handshake.
        session: What the handshake found.
        remote: The peer's address, for people.
        accepted: Whether the peer opened the connection.
        sealed: Whether heads carry a seal.
        first: Bytes that arrived behind the handshake.
    """

    def __init__(
        self,
        owner: LinkOwner,
        stream: Stream,
        session: Session,
        *,
        remote: str,
        accepted: bool,
        sealed: bool,
        first: bytes,
    ) -> None:
        self.peer = session.peer
        self.remote = remote
        self.accepted = accepted
        self.stream = stream
        self._owner = owner
        self._limits = owner.options.limits
        self._sender = self.make_sender(stream, session, sealed)
        self.send_at_once = self._sender.send_at_once  # type: ignore[method-assign]
        self._reader = FrameReader(
            self, self._limits, Seal(session.receive_key) if sealed else None, first
        )
        self._lock = threading.Lock()
        self._receive_window = ReceiveWindow(owner.options.window_bytes)
        self._pooled: memoryview | None = None
        self._closed_here = False
        self._closed = False
        self._goodbye = False
        self._num_received = 0
        self._received_bytes = 0

    def make_sender(self, stream: Stream, session: Session, sealed: bool) -> Sender:
        """Return the sending half."""
        return Sender(
            stream,
            session.peer_window_bytes,
            Seal(session.send_key) if sealed else None,
            on_blocked=self.on_blocked,
            on_failed=self.on_failed,
        )

    def send(
        self, frame: Frame, priority: int = 0, on_sent: Callable[[], None] | None = None
    ) -> None:
        """See `Link.send`."""
        check_frame(frame, self._limits)
        try:
            self._sender.send(frame, priority, on_sent)
        except PeerLost as error:
            raise PeerLost(f"cannot send to {self.remote}: {error}") from None

    def close(self) -> None:
        """See `Link.close`."""
        with self._lock:
            if self._closed_here or self._closed:
                return
            self._closed_here = True
        deadline_s = time.monotonic() + self._owner.options.linger_s
        self._owner.soon(partial(self._limit, deadline_s))
        self._sender.end(transport_head(TransportKind.BYE, b""), "the link was closed here")

    def abort(self, reason: str) -> None:
        """See `Link.abort`."""
        self._sender.halt(reason)
        self._owner.soon(partial(self.finish, reason))

    def statistics(self) -> LinkStatistics:
        """See `Link.statistics`."""
        outbox = self._sender.outbox
        return LinkStatistics(
            frames_sent=self._sender.num_sent,
            frames_received=self._num_received,
            sent_bytes=self._sender.sent_bytes,
            received_bytes=self._received_bytes,
            queued_frames=len(outbox),
            queued_bytes=outbox.queued_bytes,
            unreleased_bytes=self._receive_window.unreleased_bytes,
            outstanding_bytes=outbox.window.outstanding_bytes,
        )

    @property
    def said_goodbye(self) -> bool:
        """Whether the link is closing and everything has left."""
        return self._sender.said_goodbye

    def on_blocked(self) -> None:
        """Watch for the socket to become writable. Any thread."""
        self._owner.soon(self._watch_writable)

    def on_failed(self, reason: str) -> None:
        """Read what the peer sent before the connection broke, then close. Any thread."""
        self._owner.soon(partial(self._read_out, reason))

    # From here on: only the polling thread.

    def opened(self) -> None:
        """Report the link, and the frames that came with the handshake."""
        self._owner.watch(self, writing=False)
        self._owner.emit(Opened(self))
        self._guarded(self._reader.parse)

    def ready(self, readable: bool, writable: bool) -> None:
        """Do what the selector says is possible."""
        if writable:
            self._sender.writable()
            if not self._sender.blocked and not self._closed:
                self._owner.watch(self, writing=False)
        if readable and not self._closed:
            try:
                self._read()
            except (OSError, BiremeError) as error:
                self._fail(error)
            except BaseException:
                self.finish("an error in this process's own code")
                raise

    def expired(self) -> None:
        """Close what could not be sent within the linger limit."""
        self.finish("its queue could not be sent within the linger limit")

    def finish(self, reason: str, *, graceful: bool = False) -> None:
        """Close the socket, report it, and drop what is queued. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._owner.forget(self)
        self._sender.stop(reason)
        self._reader.abandon()
        pooled, self._pooled = self._pooled, None
        if pooled is not None:
            self._owner.pool.give(pooled)
        self._owner.emit(Closed(self, reason, graceful))

    def _limit(self, deadline_s: float) -> None:
        if not self._closed:
            self._owner.limit(self, deadline_s)

    def _watch_writable(self) -> None:
        if self._sender.blocked and not self._closed:
            self._owner.watch(self, writing=True)

    def _read(self) -> None:
        for _ in range(_READS_PER_TURN):
            num_bytes = self._reader.read(self.stream)
            if num_bytes == 0:
                self._end_of_stream()
            if num_bytes in (0, WOULD_BLOCK) or self._closed:
                return
            if self._reader.drained and self.stream.short_means_empty:
                return
        if not self.stream.short_means_empty:
            self._owner.soon(partial(self.ready, True, False))

    def _read_out(self, reason: str) -> None:
        """Take what the peer sent before the connection broke, and why; then close."""
        before_bytes = -1
        while not self._closed and before_bytes != self._reader.num_bytes:
            before_bytes = self._reader.num_bytes
            self._guarded(self._read)
        self.finish(reason, graceful=self._closed_here)

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run ``action``; what a peer does wrong ends this link and nothing else."""
        try:
            action()
        except (OSError, BiremeError) as error:
            self._fail(error)
        except BaseException:
            self.finish("an error in this process's own code")
            raise

    def _fail(self, error: Exception) -> None:
        self.finish(f"{error}", graceful=self._closed_here and isinstance(error, OSError))

    def _end_of_stream(self) -> None:
        if self._closed_here:
            self.finish("closed here", graceful=True)
        elif self._goodbye:
            self.finish("the peer closed the link", graceful=True)
        elif self._reader.mid_frame:
            self.finish("the peer vanished in the middle of a frame")
        else:
            self.finish("the peer vanished without closing the link")

    def payload_memory(self, head: bytes, payload_bytes: int) -> memoryview:
        """See `FrameTaker`."""
        with self._lock:
            self._receive_window.received(payload_bytes)
        self._pooled = None
        if not self._closed_here:
            target = sink_target(self._owner.sink, self, head, payload_bytes)
            if target is not None:
                return target
        if payload_bytes <= _SMALL_BYTES:
            return memoryview(bytearray(payload_bytes))
        self._pooled = self._owner.pool.take(payload_bytes)
        return self._pooled

    def take_frame(self, kind: int, head: bytes, payload: memoryview) -> None:
        """See `FrameTaker`."""
        if self._goodbye:
            raise RemoteProtocolError("the peer sent a frame behind its goodbye")
        if kind >= FIRST_TRANSPORT_KIND:
            self.take_own(kind, head, payload)
            return
        pooled, self._pooled = self._pooled, None
        give_back = partial(self._give_back, pooled) if payload else None
        keep = None if pooled is None else partial(self._keep, pooled)
        self.deliver(ReceivedFrame(head, payload, give_back, keep))

    def take_staged(self, kind: int, head: bytes, payload: memoryview, staging: Staging) -> None:
        """See `FrameTaker`."""
        if self._goodbye or kind >= FIRST_TRANSPORT_KIND:
            self.take_frame(kind, head, payload)
            return
        owner = self._owner
        self._num_received += 1
        self._received_bytes += len(head) + len(payload)
        taking = owner.taking
        if (
            taking is not None
            and not owner.events
            and not self._closed_here
            and taking(self, head, payload)
        ):
            with self._lock:
                report_bytes = self._receive_window.passed(len(payload))
                report = self.credit_head(report_bytes) if report_bytes else None
            if report is not None:
                self._sender.send_own(report)
            return
        with self._lock:
            self._receive_window.received(len(payload))
            staging.lent += 1
        frame = ReceivedFrame(head, payload, partial(self._give_staged, staging))
        if self._closed_here:
            frame.release()
        else:
            self._owner.emit(Arrived(self, frame))

    def deliver(self, frame: ReceivedFrame) -> None:
        """Report a whole frame, unless the link was closed here."""
        self._num_received += 1
        self._received_bytes += len(frame.head) + frame.payload.nbytes
        if self._closed_here:
            frame.release()
        else:
            self._owner.emit(Arrived(self, frame))

    def take_own(self, kind: int, head: bytes, payload: memoryview) -> None:
        """Act on a frame of the transport's own."""
        if payload:
            raise RemoteProtocolError(f"a frame of kind {kind} with a payload")
        if kind == TransportKind.CREDIT:
            self._sender.credit(read_credit(head[HEADER_BYTES:]))
        elif kind == TransportKind.BYE:
            self._goodbye = True
            self._end_of_stream()
        else:
            raise RemoteProtocolError(f"a frame of unknown kind {kind}")

    def _give_back(self, pooled: memoryview | None, frame: ReceivedFrame) -> None:
        """Take a released payload's memory and return its credit. Any thread."""
        if pooled is not None:
            self._owner.pool.give(pooled)
        with self._lock:
            report_bytes = self._receive_window.released(frame.payload.nbytes)
            report = self.credit_head(report_bytes) if report_bytes else None
        if report is not None:
            self._sender.send_own(report)

    def _keep(self, pooled: memoryview, frame: ReceivedFrame) -> Buffer:
        """Return the credit of a payload, but not its memory. Any thread."""
        self._give_back(None, frame)
        return PooledBuffer.of(self._owner.pool, pooled)

    def _give_staged(self, staging: Staging, frame: ReceivedFrame) -> None:
        """Note that nothing looks at a staged payload any more. Any thread."""
        with self._lock:
            staging.lent -= 1
            report_bytes = self._receive_window.released(len(frame.payload))
            report = self.credit_head(report_bytes) if report_bytes else None
        if report is not None:
            self._sender.send_own(report)

    def credit_head(self, report_bytes: int) -> bytes:
        """Return the frame that gives credit back. The lock is held."""
        return write_credit(report_bytes)
