"""A connection that is not a link yet: it connects, agrees on TLS, and proves the secret.

Called by `SocketTransport`, in the polling thread. Nothing here waits: each step goes as far as the
socket lets it.
"""

import os
import secrets
import socket
import ssl

from bireme.errors import BiremeError, PeerLost
from bireme.transport.auth import NONCE_BYTES, Credentials, Handshake, Session
from bireme.transport.endpoints import check_same_user
from bireme.transport.streams import WOULD_BLOCK, DescriptorStream, PlainStream, Stream, TlsStream

__all__ = ("Greeting",)

_PORTION_BYTES = 2048


class Greeting:
    """One connection in its handshake.

    Args:
        connection: Connecting, if ``client``; else accepted.
        credentials: What this side brings.
        client: Whether this side opened the connection.
        tls: The context for TLS on this connection, or None.
        host: The peer's name, for TLS to verify, if ``client``.
        shared: Whether the link will use shared memory.

    Attributes:
        stream: None until connected and, with TLS, agreed.
        wants_writing: Whether `advance` waits for the socket to be writable.
        rest: After the handshake: bytes that came behind it.
    """

    def __init__(
        self,
        connection: socket.socket,
        credentials: Credentials,
        *,
        client: bool,
        tls: ssl.SSLContext | None = None,
        host: str = "",
        shared: bool = False,
    ) -> None:
        self._socket = connection
        self._tls = tls
        self._host = host
        self._shared = shared
        self._client = client
        self._connected = False
        self._handshake = Handshake(credentials, secrets.token_bytes(NONCE_BYTES), client=client)
        self.stream: Stream | None = None
        self.wants_writing = client

    @property
    def encrypted(self) -> bool:
        """Whether the connection runs over TLS."""
        return self._tls is not None

    @property
    def rest(self) -> bytes:
        """Bytes that arrived behind the handshake."""
        return self._handshake.rest

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def advance(self) -> Session | None:
        """Go on as far as the socket lets it; return the session once both sides have proved it.

        Raises:
            AuthError: The peer refused, or failed to prove itself, or is another user.
            RemoteProtocolError: The peer speaks something else.
            PeerLost: The peer left.
            OSError: The connection failed.
        """
        if not self._connected:
            self._begin()
        if self.stream is None and not self._agree_tls():
            return None
        stream = self.stream
        assert stream is not None
        portion = memoryview(bytearray(_PORTION_BYTES))
        while self._handshake.session is None:
            num_bytes = stream.receive([portion])
            if num_bytes == WOULD_BLOCK:
                return None
            if num_bytes == 0:
                raise PeerLost("the peer closed the connection during the handshake")
            self._send(self._handshake.feed(bytes(portion[:num_bytes])))
        return self._handshake.session

    def _begin(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._connected = True
        self.wants_writing = False
        self._socket.setblocking(False)
        if self._socket.family == socket.AF_UNIX:
            check_same_user(self._socket)
        if self._tls is None:
            self._use(DescriptorStream(self._socket) if self._shared else PlainStream(self._socket))
        else:
            self._socket = self._tls.wrap_socket(
                self._socket,
                server_side=not self._client,
                server_hostname=self._host if self._client else None,
                do_handshake_on_connect=False,
            )

    def _agree_tls(self) -> bool:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants_writing = False
            return False
        except ssl.SSLWantWriteError:
            self.wants_writing = True
            return False
        self.wants_writing = False
        self._use(TlsStream(self._socket))
        return True

    def _use(self, stream: Stream) -> None:
        self.stream = stream
        self._send(self._handshake.begin())

    def _send(self, data: bytes) -> None:
        # A few hundred bytes always fit into a fresh socket's buffer.
        if data and self.stream is not None and self.stream.send([data]) != len(data):
            raise OSError("the socket does not take a handshake")

    def abandon(self) -> None:
        """Tell the peer why, if there is a reason to tell, and close."""
        try:
            self._send(self._handshake.farewell)
        except (OSError, BiremeError):
            pass
        finally:
            self._socket.close()
