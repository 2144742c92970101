"""Sockets for addresses: bound, listening, connecting; and who is at the other end of a local one.

Called by `SocketTransport`. Unix sockets have abstract names where the system knows them: those
vanish with their process however it dies.
"""

import contextlib
import errno
import ipaddress
import os
import secrets
import shutil
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bireme.errors import AuthError, ConfigError
from bireme.transport.address import Address
from bireme.transport.machine import machine_token
from bireme.transport.pacing import Pacing

__all__ = (
    "Endpoint",
    "bind",
    "check_same_user",
    "is_loopback",
    "resolve",
    "start_connecting",
    "tune",
)

_BACKLOG = 512
_TCP_BUFFER_BYTES = 4 << 20
_UNIX_BUFFER_BYTES = 1 << 20
_TCP_INFO_BYTES = 104
_TCP_INFO_RTT = 68
"""Where the smoothed round trip lies in it, in microseconds (linux/tcp.h)."""

_Sockaddr = str | tuple[str, int] | tuple[str, int, int, int]

Endpoint = tuple[socket.AddressFamily, _Sockaddr]
"""A family, and an address as its sockets take it."""


def bind(
    address: Address, *, loopback_only: bool
) -> tuple[socket.socket, Address, Callable[[], None]]:
    """Return a listening socket, the address that reaches it, and what removes its traces.

    Raises:
        ConfigError: The address is taken, is none of this machine, or reaches beyond it although
            ``loopback_only``.
    """
    try:
        if address.scheme == "tcp":
            return _bind_tcp(address, loopback_only)
        return _bind_unix(address)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen at {address}: {error}") from error


def _bind_tcp(
    address: Address, loopback_only: bool
) -> tuple[socket.socket, Address, Callable[[], None]]:
    family, sockaddr = resolve(address)[0]
    if loopback_only and not is_loopback(sockaddr):
        raise ConfigError(
            f"{address} can be reached from other machines, but this transport has no secret; "
            "give it the job's secret, or listen at tcp://127.0.0.1"
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(sockaddr)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener, Address("tcp", address.name, listener.getsockname()[1]), _nothing


def _bind_unix(address: Address) -> tuple[socket.socket, Address, Callable[[], None]]:
    name, clean = address.name, _nothing
    if not name and sys.platform == "linux":
        name = f"@bireme-{secrets.token_hex(12)}"
    elif not name:
        folder = tempfile.mkdtemp(prefix="bireme-")
        name = f"{folder}/socket"
        clean = lambda: shutil.rmtree(folder, ignore_errors=True)  # noqa: E731
    elif name.startswith("/"):
        _remove_stale(Path(name))
        clean = lambda: Path(name).unlink(missing_ok=True)  # noqa: E731
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(_unix_sockaddr(name))
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError):
        listener.close()
        raise
    if name.startswith("/"):
        os.chmod(name, 0o600)
    return listener, Address(address.scheme, name, machine=machine_token()), clean


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that was killed; leave anything else."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink(missing_ok=True)


def resolve(address: Address) -> list[Endpoint]:
    """Return where an address may be, best first. Asks the name service, which may take a while.

    Raises:
        OSError: The host is unknown.
    """
    if address.scheme != "tcp":
        return [(socket.AF_UNIX, _unix_sockaddr(address.name))]
    found = socket.getaddrinfo(address.name, address.port, type=socket.SOCK_STREAM)
    return [(family, sockaddr) for family, _, _, _, sockaddr in found]  # type: ignore[misc]


def start_connecting(endpoint: Endpoint) -> socket.socket:
    """Return a socket that is connecting, or has connected; writable when it is decided.

    Raises:
        OSError: The connection is refused already.
    """
    family, sockaddr = endpoint
    connecting = socket.socket(family, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        code = connecting.connect_ex(sockaddr)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except (OSError, UnicodeError):
        connecting.close()
        raise
    return connecting


def tune(descriptor: int, pacing: Pacing) -> None:
    """Set what makes frames leave at once, and large ones in few calls.

    Args:
        descriptor: Of a connected socket.
        pacing: What is known of this machine's network link.

    Raises:
        OSError: The descriptor is no socket any more.
    """
    # The descriptor belongs to somebody else, so that this object must not close it.
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        local = connected.family == socket.AF_UNIX
        size_bytes = backlog_bytes = _UNIX_BUFFER_BYTES if local else _TCP_BUFFER_BYTES
        if not local:
            backlog_bytes = pacing.backlog_bytes(_round_trip_s(connected), size_bytes)
        for option, number in ((socket.SO_SNDBUF, backlog_bytes), (socket.SO_RCVBUF, size_bytes)):
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, option, number)
        if not local:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _round_trip_s(connected: socket.socket) -> float:
    """Return the round trip that the system has measured; 0 where it does not tell."""
    if sys.platform != "linux":
        return 0.0
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return float(struct.unpack_from("I", info, _TCP_INFO_RTT)[0]) / 1e6
    except (OSError, struct.error):
        return 0.0


def check_same_user(connected: socket.socket) -> None:
    """Refuse a local peer that runs as another user.

    Raises:
        AuthError: The peer's user is not this process's.
    """
    if sys.platform != "linux":
        return
    size_bytes = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size_bytes)
    process, user, _ = struct.unpack("3i", credentials)
    if user != os.geteuid():
        raise AuthError(
            f"process {process} of user {user} is at the other end of a local socket; "
            f"only user {os.geteuid()} may connect"
        )


def is_loopback(sockaddr: _Sockaddr) -> bool:
    """Return whether an address is reached from this machine only."""
    return ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]).is_loopback


def _unix_sockaddr(name: str) -> str:
    return "\0" + name[1:] if name.startswith("@") else name


def _nothing() -> None:
    """Leave nothing to clean."""
