"""A connected socket as links use it: gather out, scatter in, never block.

The variants differ in what the system does for them: a plain socket takes and fills several pieces
of memory per call, a TLS socket one at a time and from one thread at a time. Called by `SocketLink`
and by the handshake.
"""

import array
import contextlib
import os
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

__all__ = ("WOULD_BLOCK", "DescriptorStream", "PlainStream", "Stream", "TlsStream")

WOULD_BLOCK = -1
"""Returned where the socket can do nothing now."""

_MAX_PIECES = 512
"""Below every system's IOV_MAX (1024 on Linux and macOS)."""

_ANCILLARY_BYTES = socket.CMSG_SPACE(64 * 4)

_UCRED = struct.Struct("3i")

Piece = bytes | memoryview


class Stream(Protocol):
    """What a link needs of a socket. Every method raises OSError when the connection is gone."""

    def send(self, pieces: Sequence[Piece], descriptors: Sequence[int] = ()) -> int:
        """Send the start of ``pieces`` and return how many bytes, or `WOULD_BLOCK`.

        ``descriptors`` go with the first byte; only a `DescriptorStream` can send them.
        """

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

    def send(self, pieces: Sequence[Piece], descriptors: Sequence[int] = ()) -> int:
        """See `Stream.send`."""
        try:
            return self._socket.sendmsg(
                pieces if len(pieces) <= _MAX_PIECES else pieces[:_MAX_PIECES]
            )
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


class DescriptorStream(PlainStream):
    """A Unix socket that also carries open files.

    Attributes:
        descriptors: Those that arrived and that nobody has taken, in order.
    """

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.descriptors: deque[int] = deque()
        self.close = self._close

    def send(self, pieces: Sequence[Piece], descriptors: Sequence[int] = ()) -> int:
        """See `Stream.send`."""
        try:
            if not descriptors and len(pieces) <= _MAX_PIECES:
                return self._socket.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
        try:
            return self._socket.sendmsg(pieces[:_MAX_PIECES], ancillary if descriptors else ())
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def receive(self, targets: Sequence[memoryview]) -> int:
        """See `Stream.receive`."""
        try:
            num_bytes, ancillary, _, _ = self._socket.recvmsg_into(targets, _ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(data[: len(data) // received.itemsize * received.itemsize])
                self.descriptors.extend(received)
        return num_bytes

    def peer_process(self) -> int:
        """Return the id of the process at the other end, or 0 if it cannot be seen from here."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return int(_UCRED.unpack(credentials)[0])

    def _close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.popleft())
        self._socket.close()


class TlsStream:
    """A TLS socket whose handshake is done. Its session may not be used by two threads at once."""

    short_means_empty = False

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self._socket = connected
        self._lock = threading.Lock()
        self.fileno = connected.fileno
        self.close = connected.close

    def send(self, pieces: Sequence[Piece], descriptors: Sequence[int] = ()) -> int:
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
