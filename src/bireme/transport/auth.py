"""The handshake of a new connection: both sides prove that they hold the job's secret. Pure.

Called by the socket links, on the first bytes of every connection. The client speaks first, proves
itself first, and neither side says who it is to a peer that has not proved itself:

    client                                        server
    hello: version, window, nonce       ------>
                                        <------   hello: version, window, nonce
    proof: HMAC, identity               ------>   closes, with a refusal, if it is wrong
                                        <------   proof: HMAC, identity

The HMACs cover both hellos (so a recorded handshake is of no use against a fresh nonce), the
side's role (so a proof cannot be mirrored) and the identities. Without a secret the same exchange
still keeps jobs apart, by their ids.
"""

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass, field

from bireme.errors import AuthError, LocalProtocolError, RemoteProtocolError
from bireme.transport.base import Identity

__all__ = ("MAX_HANDSHAKE_BYTES", "NONCE_BYTES", "Credentials", "Handshake", "Session")

NONCE_BYTES = 32
MAX_HANDSHAKE_BYTES = 4096
"""What a peer may send before it has proved itself."""

_VERSION = 1
_HELLO = struct.Struct("<4sB?2xQ32s")
_PROOF = struct.Struct("<4sHH32s")
_HELLO_MAGIC = b"BRMH"
_PROOF_MAGIC = b"BRMP"
_REFUSED_MAGIC = b"BRMR"
_REFUSED = struct.Struct("<4sB")
_MAX_IDENTITY_BYTES = MAX_HANDSHAKE_BYTES - _HELLO.size - _PROOF.size

_REASONS = {
    1: "it holds another secret, or belongs to another job",
    2: "it speaks another version of the protocol",
    3: "one side has a secret and the other has none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What one side brings to a handshake.

    Args:
        secret: The job's secret, any length; empty for none.
        job: The job's id.
        identity: Names to str or int, told to the peer once it has proved itself.
        window_bytes: Payload that the peer may have under way to here.
    """

    secret: bytes = field(repr=False)
    job: str
    identity: Identity
    window_bytes: int

    def key(self) -> bytes:
        """Return the key of the proofs, the secret bound to this protocol and job."""
        return hmac.digest(self.secret, b"bireme handshake 1\0" + self.job.encode(), "sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What both sides know after the handshake.

    ``send_key`` and ``receive_key`` differ, and are new for every connection.
    """

    peer: Identity
    peer_window_bytes: int
    send_key: bytes = field(repr=False)
    receive_key: bytes = field(repr=False)


class Handshake:
    """One side of the exchange: give it what arrives, send what it returns.

    Args:
        credentials: What this side brings.
        nonce: ``NONCE_BYTES`` fresh random bytes, never used before.
        client: Whether this side opened the connection.

    Attributes:
        session: None until the peer has proved itself and knows that this side has.
        farewell: After an error, what to send before closing.

    Example:
        >>> one = Credentials(secret=b"s", job="j", identity={"rank": 1}, window_bytes=1)
        >>> client = Handshake(one, b"c" * 32, client=True)
        >>> server = Handshake(one, b"s" * 32, client=False)
        >>> to_server = client.begin()
        >>> while not (client.session and server.session):
        ...     to_client = server.feed(to_server); to_server = client.feed(to_client)
        >>> server.session.peer, server.session.send_key == client.session.receive_key
        ({'rank': 1}, True)

    Source:
        ISO/IEC 9798-4, mutual authentication with a keyed check function and random numbers.
    """

    def __init__(self, credentials: Credentials, nonce: bytes, *, client: bool) -> None:
        if len(nonce) != NONCE_BYTES:
            raise LocalProtocolError(f"a nonce has {NONCE_BYTES} bytes, got {len(nonce)}")
        self._identity = json.dumps(dict(credentials.identity), separators=(",", ":")).encode()
        if len(self._identity) > _MAX_IDENTITY_BYTES:
            raise LocalProtocolError(f"the identity is too long: {len(self._identity)} bytes")
        self._secured = bool(credentials.secret)
        self._hello = _HELLO.pack(
            _HELLO_MAGIC, _VERSION, self._secured, credentials.window_bytes, nonce
        )
        self._key = credentials.key()
        self._client = client
        self._transcript = b""
        self._peer_window_bytes = 0
        self._received = bytearray()
        self._num_received = 0
        self.session: Session | None = None
        self.farewell = b""

    @property
    def rest(self) -> bytes:
        """What arrived behind the handshake: the first frames."""
        return bytes(self._received) if self.session else b""

    def begin(self) -> bytes:
        """Return what to send before anything has arrived."""
        return self._hello if self._client else b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes in any portions and return what to send now.

        Raises:
            AuthError: The peer refused this side, or failed to prove itself.
            RemoteProtocolError: The bytes are no handshake, or too many.
        """
        self._num_received += len(data)
        self._received += data
        if self.session is not None:
            return b""
        reply = b""
        if not self._transcript:
            reply = self._take_hello()
        if self._transcript:
            reply += self._take_proof()
        if self.session is None and self._num_received > MAX_HANDSHAKE_BYTES:
            raise RemoteProtocolError(
                f"more than {MAX_HANDSHAKE_BYTES} bytes without proof of the secret"
            )
        return reply

    def _take_hello(self) -> bytes:
        if self._is_refusal():
            return b""
        self._check_magic(_HELLO_MAGIC)
        if len(self._received) < _HELLO.size:
            return b""
        hello = bytes(self._received[: _HELLO.size])
        del self._received[: _HELLO.size]
        _, version, secured, window_bytes, _ = _HELLO.unpack(hello)
        if version != _VERSION:
            raise self._refusal(2)
        if secured != self._secured:
            raise self._refusal(3)
        if not window_bytes:
            raise RemoteProtocolError("the peer allows no payload at all")
        self._peer_window_bytes = window_bytes
        both = (self._hello, hello) if self._client else (hello, self._hello)
        self._transcript = hashlib.sha256(b"".join(both)).digest()
        return self._proof() if self._client else self._hello

    def _take_proof(self) -> bytes:
        if self._is_refusal():
            return b""
        self._check_magic(_PROOF_MAGIC)
        if len(self._received) < _PROOF.size:
            return b""
        _, size_bytes, reserved, proof = _PROOF.unpack_from(self._received)
        if reserved or size_bytes > _MAX_IDENTITY_BYTES:
            raise RemoteProtocolError("a malformed proof")
        end = _PROOF.size + size_bytes
        if len(self._received) < end:
            return b""
        identity = bytes(self._received[_PROOF.size : end])
        expected = self._mac(b"server" if self._client else b"client", identity)
        if not hmac.compare_digest(proof, expected):
            raise self._refusal(1)
        del self._received[:end]
        self._finish(_identity_of(identity))
        return b"" if self._client else self._proof()

    def _proof(self) -> bytes:
        mac = self._mac(b"client" if self._client else b"server", self._identity)
        return _PROOF.pack(_PROOF_MAGIC, len(self._identity), 0, mac) + self._identity

    def _mac(self, label: bytes, identity: bytes) -> bytes:
        return hmac.digest(self._key, label + b" proof\0" + self._transcript + identity, "sha256")

    def _finish(self, peer: Identity) -> None:
        keys = [
            hmac.digest(self._key, label + b" frames\0" + self._transcript, "sha256")
            for label in (b"client", b"server")
        ]
        if not self._client:
            keys.reverse()
        self.session = Session(
            peer=peer,
            peer_window_bytes=self._peer_window_bytes,
            send_key=keys[0],
            receive_key=keys[1],
        )

    def _check_magic(self, magic: bytes) -> None:
        start = bytes(self._received[: len(magic)])
        if not magic.startswith(start):
            raise RemoteProtocolError(f"the first bytes are no handshake: {start!r}")

    def _is_refusal(self) -> bool:
        """Return whether the peer is about to refuse this side; raise once it has said why."""
        if not self._received.startswith(_REFUSED_MAGIC):
            return False
        if len(self._received) < _REFUSED.size:
            return True
        _, code = _REFUSED.unpack_from(self._received)
        raise AuthError(f"the peer refused this process: {_REASONS.get(code, 'no reason given')}")

    def _refusal(self, code: int) -> AuthError:
        self.farewell = _REFUSED.pack(_REFUSED_MAGIC, code)
        return AuthError(f"refused the peer: {_REASONS[code]}")


def _identity_of(data: bytes) -> Identity:
    """Read an identity from a peer that has proved itself.

    Raises:
        RemoteProtocolError: It is not a flat object of str and int.
    """
    try:
        identity = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"a malformed identity: {error}") from error
    if not isinstance(identity, dict) or not all(
        isinstance(value, str | int) for value in identity.values()
    ):
        raise RemoteProtocolError("a malformed identity: not a flat object of text and integers")
    return identity
