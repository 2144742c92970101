"""Agents that a cluster has started call their launcher, and both prove that they know the job.

``mpirun``, ``srun`` and array jobs start many processes by one command, and lead none of their
standard streams to the launcher. So each agent opens a connection to it, with the same proof of
the job's secret as between nodes, and then talks over it as it would over its standard streams.
"""

import contextlib
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from bireme.errors import AuthError, BiremeError, JobError, TransportError
from bireme.transport.auth import NONCE_BYTES, Credentials, Handshake
from bireme.transport.base import Identity

__all__ = ("Reception", "dial")

_PROOF_LIMIT_S: Final = 10.0
_CONNECT_LIMIT_S: Final = 5.0
_BACKLOG = 4096
_READ_BYTES = 1 << 12
_WINDOW_BYTES = 1


class Reception:
    """Takes the calls of a job's agents.

    Args:
        secret: What they prove to know, and have proved to them.
        job: The job's name, which takes part in the proof.
        selector: Where descriptors go. The data of what is registered is a function without
            arguments, to be called when its descriptor is ready.
        on_call: Given what an agent that has proved itself says of itself, and the connection.

    Raises:
        JobError: No port is free.

    Guarantees:
        Nothing blocks. Strangers get nothing.

    Example:
        >>> with selectors.DefaultSelector() as selector:
        ...     reception = Reception(b"secret", "job", selector, lambda identity, link: None)
        ...     reception.port > 0, reception.close()
        (True, None)
    """

    def __init__(
        self,
        secret: bytes,
        job: str,
        selector: selectors.BaseSelector,
        on_call: Callable[[Identity, socket.socket], object],
    ) -> None:
        self._secret, self._job = secret, job
        self._selector = selector
        self._on_call = on_call
        self._guests: set[_Guest] = set()
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            self._server = socket.create_server(
                ("", 0), family=family, backlog=_BACKLOG, dualstack_ipv6=both
            )
        except OSError as error:
            raise JobError(f"cannot listen for the job's agents: {error}") from error
        self._server.setblocking(False)
        self.port = int(self._server.getsockname()[1])
        """Where agents call."""
        selector.register(self._server, selectors.EVENT_READ, self._admit)

    def step(self) -> None:
        """Send away who has not proved itself in time."""
        for guest in [each for each in self._guests if each.is_late()]:
            self._dismiss(guest)

    def close(self) -> None:
        """Take no more calls."""
        for guest in list(self._guests):
            self._dismiss(guest)
        self._selector.unregister(self._server)
        self._server.close()

    def _admit(self) -> None:
        with contextlib.suppress(OSError):
            link, _ = self._server.accept()
            link.setblocking(False)
            guest = _Guest(link, _handshake(self._secret, self._job, {}, client=False))
            self._guests.add(guest)
            self._selector.register(link, selectors.EVENT_READ, lambda: self._hear(guest))

    def _hear(self, guest: "_Guest") -> None:
        if not guest.is_done():
            return
        if guest.identity is None:
            self._dismiss(guest)
            return
        self._guests.discard(guest)
        self._selector.unregister(guest.link)
        self._on_call(guest.identity, guest.link)

    def _dismiss(self, guest: "_Guest") -> None:
        self._guests.discard(guest)
        self._selector.unregister(guest.link)
        guest.link.close()


class _Guest:
    """A caller that has yet to prove itself."""

    def __init__(self, link: socket.socket, handshake: Handshake) -> None:
        self.link = link
        self.identity: Identity | None = None
        self._handshake = handshake
        self._since_s = time.monotonic()

    def is_done(self) -> bool:
        """Take what has arrived; return whether the guest has proved itself, or failed to."""
        try:
            data = self.link.recv(_READ_BYTES)
            if not data:
                return True
            reply = self._handshake.feed(data)
            if reply:
                self.link.sendall(reply)
        except BlockingIOError:
            return False
        except (BiremeError, OSError):
            with contextlib.suppress(OSError):
                self.link.sendall(self._handshake.farewell)
            return True
        if self._handshake.session is None:
            return False
        self.identity = self._handshake.session.peer
        return True

    def is_late(self) -> bool:
        """Return whether it has had time enough."""
        return time.monotonic() - self._since_s > _PROOF_LIMIT_S


def dial(
    addresses: Sequence[tuple[str, int]], secret: bytes, job: str, identity: Identity
) -> socket.socket:
    """Return a connection to the launcher of a job.

    Args:
        addresses: The launcher's; tried in this order.
        secret: The job's.
        job: Its name.
        identity: What this agent says of itself.

    Raises:
        TransportError: Nobody is there, or somebody else.
    """
    reasons = []
    for host, port in addresses:
        try:
            link = socket.create_connection((host, port), _CONNECT_LIMIT_S)
        except OSError as error:
            reasons.append(f"{host}:{port}: {error}")
            continue
        try:
            _prove(link, _handshake(secret, job, identity, client=True))
        except (BiremeError, OSError) as error:
            link.close()
            reasons.append(f"{host}:{port}: {error}")
            continue
        link.settimeout(None)
        return link
    raise TransportError(f"cannot reach the launcher of {job}: {'; '.join(reasons)}")


def _prove(link: socket.socket, handshake: Handshake) -> None:
    link.settimeout(_PROOF_LIMIT_S)
    link.sendall(handshake.begin())
    while handshake.session is None:
        # One byte at a time: what comes behind the proof is not ours to read.
        data = link.recv(1)
        if not data:
            raise AuthError("it closed the connection")
        reply = handshake.feed(data)
        if reply:
            link.sendall(reply)


def _handshake(secret: bytes, job: str, identity: Identity, *, client: bool) -> Handshake:
    mine = Credentials(
        secret=secret, job=f"agents of {job}", identity=identity, window_bytes=_WINDOW_BYTES
    )
    return Handshake(mine, secrets.token_bytes(NONCE_BYTES), client=client)
