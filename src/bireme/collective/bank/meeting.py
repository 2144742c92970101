"""How the ranks of one machine come to share memory: one makes it and hands it to the others.

The leader listens at a Unix socket without a file (its name lies in the network's namespace), and
tells its name and a secret through the group's store. To whoever runs as the same user and knows
the secret it hands the memory file itself, as a descriptor: so there is never a name that somebody
could leave behind, or open in our place. The sockets close when everybody has it.
Called by `Bank.join`.
"""

import contextlib
import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from typing import Protocol

from bireme.collective.bank.patience import are_set_within
from bireme.collective.bank.segment import Layout, Segment, make_file
from bireme.errors import AuthError, RankLost, RemoteProtocolError, WaitTimeout

__all__ = ("Store", "await_keys", "meet")

_CREDENTIALS = struct.Struct("3i")
_HELLO = struct.Struct("<32sI")
_SIZES = struct.Struct("<IQ")
_HOLDS, _GO = b"h", b"g"


class Store(Protocol):
    """What is used of a ``torch.distributed`` store."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """Return a key's value."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all of ``keys`` are set."""


def await_keys(store: Store, keys: dict[int, str], deadline_s: float, what: str) -> None:
    """Wait until ranks have set their keys.

    Args:
        store: The group's.
        keys: The key of each rank.
        deadline_s: Until when, by ``time.monotonic()``.
        what: What this is for.

    Raises:
        WaitTimeout: Not all came; names who is missing.
    """
    if are_set_within(store, list(keys.values()), deadline_s - time.monotonic()):
        return
    missing = [str(rank) for rank, key in sorted(keys.items()) if not store.check([key])]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise WaitTimeout(f"{what}: rank{plural} {', '.join(missing)} did not come")


def meet(
    store: Store, rank: int, members: Sequence[int], layout: Layout, timeout_s: float
) -> Segment:
    """Return the segment of this machine's ranks; every one of them calls this.

    Args:
        store: Keys of its own for this group.
        rank: This rank in the whole group.
        members: The group's ranks on this machine, in order; the first is the leader.
        layout: The leader's counts.
        timeout_s: How long to wait for the others.

    Raises:
        WaitTimeout: Somebody did not come.
        RankLost: Somebody came and died.
        AuthError: Another user, or somebody without the secret, is at the other end.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        if rank == members[0]:
            return _lead(store, members, layout, deadline_s)
        return _follow(store, rank, members, deadline_s)
    except TimeoutError as error:
        if isinstance(error, WaitTimeout):
            raise
        raise WaitTimeout(
            f"rank {rank}: the ranks {', '.join(map(str, members))} of this machine did not all "
            f"come within {timeout_s:.0f} s"
        ) from error
    except (ConnectionError, FileNotFoundError) as error:
        if isinstance(error, AuthError):
            raise
        raise RankLost(f"rank {rank}, meeting on this machine: {error}") from error


def _door(leader: int) -> str:
    return f"door/{leader}"


def _lead(store: Store, members: Sequence[int], layout: Layout, deadline_s: float) -> Segment:
    name, secret = secrets.token_hex(16), secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(f"\0bireme-bank-{name}")
        listener.listen(len(members))
        descriptor = make_file(layout)
        segment = Segment(descriptor, layout, 0)
        stack.callback(segment.close)
        store.set(_door(members[0]), f"{name} {secret}")
        guests: dict[int, socket.socket] = {}
        while len(guests) < len(members) - 1:
            try:
                _limit(listener, deadline_s)
                guest = stack.enter_context(listener.accept()[0])
            except TimeoutError as error:
                raise WaitTimeout(_missing({*members[1:]} - {*guests})) from error
            rank = _admit(guest, secret.encode(), deadline_s)
            if rank in members and rank not in guests:
                body = _SIZES.pack(layout.num_ranks, layout.area_bytes)
                socket.send_fds(guest, [body], [descriptor])
                guests[rank] = guest
        for rank, guest in guests.items():
            _expect(guest, _HOLDS, deadline_s, rank)
        for guest in guests.values():
            guest.send(_GO)
        stack.pop_all()
        listener.close()
        for guest in guests.values():
            guest.close()
        return segment


def _missing(ranks: set[int]) -> str:
    plural = "s" if len(ranks) > 1 else ""
    names = ", ".join(map(str, sorted(ranks)))
    return f"rank{plural} {names} of this machine did not come to share memory"


def _admit(guest: socket.socket, secret: bytes, deadline_s: float) -> int:
    """Return a guest's rank; a stranger is turned away and ends nothing: -1."""
    if _user(guest) == os.geteuid():
        _limit(guest, deadline_s)
        hello = b""
        with contextlib.suppress(ConnectionError):
            hello = guest.recv(_HELLO.size)
        if len(hello) == _HELLO.size:
            found, rank = _HELLO.unpack(hello)
            if hmac.compare_digest(found, secret):
                return int(rank)
    guest.close()
    return -1


def _follow(store: Store, rank: int, members: Sequence[int], deadline_s: float) -> Segment:
    key = _door(members[0])
    await_keys(store, {members[0]: key}, deadline_s, f"rank {rank}, meeting on this machine")
    name, _, secret = store.get(key).decode().partition(" ")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
        _limit(host, deadline_s)
        host.connect(f"\0bireme-bank-{name}")
        if _user(host) != os.geteuid():
            raise AuthError("the leader of this machine's ranks runs as another user")
        host.send(_HELLO.pack(secret.encode(), rank))
        body, descriptors, _, _ = socket.recv_fds(host, _SIZES.size, 1)
        if not body:
            raise ConnectionResetError(f"rank {members[0]} is gone")
        if len(body) != _SIZES.size or len(descriptors) != 1:
            for each in descriptors:
                os.close(each)
            raise RemoteProtocolError("the leader of this machine's ranks sent something else")
        segment = Segment(descriptors[0], Layout(*_SIZES.unpack(body)), members.index(rank))
        try:
            host.send(_HOLDS)
            _expect(host, _GO, deadline_s, members[0])
        except BaseException:
            segment.close()
            raise
        return segment


def _user(connection: socket.socket) -> int:
    """Return the user at the other end, as the kernel saw it when it connected or listened."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(raw)[1]
    return user


def _limit(connection: socket.socket, deadline_s: float) -> None:
    connection.settimeout(max(deadline_s - time.monotonic(), 0.001))


def _expect(connection: socket.socket, word: bytes, deadline_s: float, rank: int) -> None:
    _limit(connection, deadline_s)
    found = connection.recv(1)
    if not found:
        raise ConnectionResetError(f"rank {rank} is gone")
    if found != word:
        raise RemoteProtocolError(f"rank {rank} of this machine sent something else")
