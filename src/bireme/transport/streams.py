"""A connected socket as links use it: gather out, scatter in, never block.

The variants differ in what the system does for them: a plain socket takes and fills several pieces
of memory per call, a TLS socket one at a time and from one thread at a time. Called by `SocketLink`
and by the handshake.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Protocol

__all__ = ("WOULD_BLOCK", "PlainStream", "Stream", "TlsStream")

WOULD_BLOCK = -1
"""Returned where the socket can do nothing now."""

_MAX_PIECES = 512
"""Below every system's IOV_MAX (1024 on Linux and macOS)."""

Piece = bytes | memoryview


class Stream(Protocol):
    """What a link needs of a socket. Every method raises OSError when the connection is gone."""

    def send(self, pieces: Sequence[Piece]) -> int:
        """Send the start of ``pieces`` and return how many bytes, or `WOULD_BLOCK`."""

    def receive(self, targets: Sequence[memoryview]) -> int:
        """Fill the start of ``targets``; return how many bytes, 0 at the end, or `WOULD_BLOCK`."""

    short_means_empty: bool
    """Whether a read that did not fill its targets means that nothing is left.

    Where it does not, bytes may be waiting that a selector cannot see.
    """

    def end_sending(self) -> None:
        """Tell the peer that nothing follows."""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""

    def close(self) -> None:
        """Free the descriptor."""


class PlainStream:
    """A TCP or Unix socket.

    Example:
        >>> one, other = (PlainStream(end) for end in socket.socketpair())
        >>> target = memoryview(bytearray(8))
        >>> one.send([b"ab", b"cd"]), other.receive([target[:3], target[3:]]), bytes(target[:4])
        (4, 4, b'abcd')
        >>> other.receive([target])
        -1
        >>> one.close(); other.receive([target])
        0
        >>> other.close()
    """

    short_means_empty = True

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.fileno = connected.fileno
        self.close = connected.close

    def send(self, pieces: Sequence[Piece]) -> int:
        """See `Stream.send`."""
        try:
            return self._socket.sendmsg(pieces[:_MAX_PIECES])
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def receive(self, targets: Sequence[memoryview]) -> int:
        """See `Stream.receive`."""
        try:
            if len(targets) == 1:
                return self._socket.recv_into(targets[0])
            return self._socket.recvmsg_into(targets)[0]
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def end_sending(self) -> None:
        """See `Stream.end_sending`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)


class TlsStream:
    """A TLS socket whose handshake is done. Its session may not be used by two threads at once."""

    short_means_empty = False

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self._socket = connected
        self._lock = threading.Lock()
        self.fileno = connected.fileno
        self.close = connected.close

    def send(self, pieces: Sequence[Piece]) -> int:
        """See `Stream.send`."""
        try:
            with self._lock:
                return self._socket.send(pieces[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK

    def receive(self, targets: Sequence[memoryview]) -> int:
        """See `Stream.receive`."""
        try:
            with self._lock:
                return self._socket.recv_into(targets[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK

    def end_sending(self) -> None:
        """Leave it to the goodbye: the socket module cannot end one direction of TLS alone."""
