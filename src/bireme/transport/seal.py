"""A keyed hash with a counter behind every head that crosses a network in the clear. Pure.

It keeps whoever can inject packets, but does not hold the job's secret, from forging, replaying,
dropping or reordering frames. Called by TCP links when there is a secret and no TLS; local sockets
need none, since nobody else can write to them.
"""

import hashlib
import hmac
import struct

from bireme.errors import RemoteProtocolError

__all__ = ("SEAL_BYTES", "Seal")

SEAL_BYTES = 16

_COUNTER = struct.Struct("<Q")


class Seal:
    """Seals or checks the heads of one direction, in their order.

    Args:
        key: The session's key of that direction.

    Example:
        >>> sender, receiver = Seal(b"k"), Seal(b"k")
        >>> seal = sender.seal(b"head")
        >>> receiver.check(b"head", seal)
        >>> receiver.check(b"head", seal)
        Traceback (most recent call last):
        ...
        bireme.errors.RemoteProtocolError: frame 1 has a wrong seal: forged, replayed or damaged

    Source:
        RFC 7693 section 2.9 (keyed BLAKE2 is a message authentication code, of any length up to
        64 bytes). It takes a third of the time of an HMAC with SHA-256.
    """

    __slots__ = ("_keyed", "_number")

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=SEAL_BYTES)
        self._number = 0

    def seal(self, head: bytes) -> bytes:
        """Return the seal of the next head."""
        number, self._number = self._number, self._number + 1
        digest = self._keyed.copy()
        digest.update(_COUNTER.pack(number) + head)
        return digest.digest()

    def check(self, head: bytes, seal: bytes) -> None:
        """Check the next head.

        Raises:
            RemoteProtocolError: It is not the next one that the peer sealed.
        """
        number = self._number
        if not hmac.compare_digest(self.seal(head), seal):
            raise RemoteProtocolError(
                f"frame {number} has a wrong seal: forged, replayed or damaged"
            )
