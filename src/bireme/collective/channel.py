"""The control channel: rank 0 in the middle, one link to every other rank.

Links are those of `bireme.transport`: a Unix socket within one machine, TCP between machines, with
a secret that rank 0 makes and the store hands on. A rank's death closes its link at once.
"""

import json
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bireme.collective.bank.patience import are_set_within
from bireme.errors import BiremeError, PeerLost, RankLost, WaitTimeout
from bireme.transport.base import Arrived, Closed, Frame, Link, Opened, TransportOptions
from bireme.transport.choose import best_address
from bireme.transport.machine import machine_token
from bireme.transport.tcp import SocketTransport
from bireme.types.topology import Topology
from bireme.wire.header import HEADER_BYTES, write_header

__all__ = ("Channel", "Gone", "Heard", "meet")

_KIND = 200
"""The kind of every frame here; the body says the rest."""
_KEY = "control"
_LINGER_S = 2.0
_LARGE_BYTES = 16 << 10
"""Smaller messages fit what the system takes at once."""


class Heard(NamedTuple):
    """A message of ``rank`` is here."""

    rank: int
    body: bytes


class Gone(NamedTuple):
    """The link to ``rank`` has closed."""

    rank: int
    reason: str


class Channel:
    """Links to the ranks that this rank talks with.

    Args:
        transport: Owns the links; closed with the channel.
        links: By rank.
        early: What some ranks said before all were there.
    """

    def __init__(
        self,
        transport: SocketTransport,
        links: dict[int, Link],
        early: Sequence[Heard] = (),
    ) -> None:
        self._transport = transport
        self._links = links
        self._early = list(early)
        self._num_unsent = 0
        for rank, link in links.items():
            link.context = rank

    @property
    def peers(self) -> frozenset[int]:
        """The ranks that can be reached."""
        return frozenset(self._links)

    def send(self, rank: int, body: bytes) -> None:
        """Send a message; to a rank that is gone, nothing: `poll` has told or will."""
        link = self._links.get(rank)
        if link is None:
            return
        is_large = len(body) > _LARGE_BYTES
        self._num_unsent += is_large
        try:
            frame = Frame(write_header(_KIND, body, 0) + body)
            link.send(frame, on_sent=self._sent if is_large else None)
        except PeerLost:
            self._num_unsent -= is_large

    def _sent(self) -> None:
        self._num_unsent -= 1
        self._transport.wake()

    def poll(self, timeout_s: float | None) -> list[Heard | Gone]:
        """Wait for news, at most so many seconds, and return it in order."""
        news: list[Heard | Gone] = [*self._early]
        if news:
            self._early.clear()
            return news
        for event in self._transport.poll(timeout_s):
            rank = event.link.context
            if not isinstance(rank, int):
                continue
            if isinstance(event, Arrived):
                news.append(Heard(rank, event.frame.head[HEADER_BYTES:]))
                event.frame.release()
            elif isinstance(event, Closed):
                self._links.pop(rank, None)
                news.append(Gone(rank, event.reason))
        return news

    @property
    def has_unsent(self) -> bool:
        """Whether a large message has not left whole; when it has, `poll` returns."""
        return self._num_unsent > 0

    def wake(self) -> None:
        """Make the `poll` under way, or the next one, return."""
        self._transport.wake()

    def close(self) -> None:
        """Close the links after what has been sent has left."""
        self._transport.close()


def meet(topology: Topology, store: Any, timeout_s: float, notice: bytes) -> tuple[Channel, bytes]:
    """Return this rank's channel, and rank 0's notice; every rank calls this.

    Args:
        topology: This rank's place.
        store: A ``torch.distributed`` store with keys of its own for this start.
        timeout_s: How long ranks wait for each other.
        notice: What rank 0 wants all ranks to know; the others' is not looked at.

    Raises:
        WaitTimeout: A rank did not come; named.
        RankLost: Rank 0 cannot be reached.
    """
    if topology.rank == 0:
        return _lead(topology, store, timeout_s, notice), notice
    return _follow(topology, store, timeout_s)


def _lead(topology: Topology, store: Any, timeout_s: float, notice: bytes) -> Channel:
    secret = secrets.token_bytes(32)
    transport = _transport(topology, secret)
    addresses = [transport.listen("unix://")]
    if topology.local_size < topology.size:
        addresses.append(transport.listen("tcp://0.0.0.0:0"))
    told = {
        "secret": secret.hex(),
        "addresses": addresses,
        "host": socket.gethostname(),
        "notice": notice.hex(),
    }
    store.set(_KEY, json.dumps(told))
    links: dict[int, Link] = {}
    early: list[Heard] = []
    deadline_s = time.monotonic() + timeout_s
    while len(links) < topology.size - 1:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            missing = sorted(set(range(1, topology.size)) - set(links))
            transport.close()
            raise WaitTimeout(f"rank 0 waited {timeout_s:g} s for the ranks {missing}")
        for event in transport.poll(left_s):
            rank = event.link.peer.get("rank")
            if isinstance(event, Opened) and isinstance(rank, int):
                links[rank] = event.link
            elif isinstance(event, Arrived) and isinstance(rank, int):
                early.append(Heard(rank, event.frame.head[HEADER_BYTES:]))
                event.frame.release()
            elif isinstance(event, Closed) and isinstance(rank, int):
                transport.close()
                raise RankLost(f"rank {rank} is lost while starting: {event.reason}")
    return Channel(transport, links, early)


def _follow(topology: Topology, store: Any, timeout_s: float) -> tuple[Channel, bytes]:
    began_s = time.monotonic()
    try:
        is_there = are_set_within(store, [_KEY], timeout_s)
    except RuntimeError as error:
        raise WaitTimeout(
            f"rank {topology.rank} waited for rank 0 to start, and the store is gone: {error}"
        ) from error
    if not is_there:
        raise WaitTimeout(f"rank {topology.rank} waited {timeout_s:g} s for rank 0 to start")
    told = json.loads(store.get(_KEY))
    transport = _transport(topology, bytes.fromhex(told["secret"]))
    left_s = max(timeout_s - (time.monotonic() - began_s), 1.0)
    reasons = []
    for address in _addresses(told, store):
        try:
            link = transport.connect(address, left_s)
        except BiremeError as error:
            reasons.append(str(error))
        else:
            return Channel(transport, {0: link}), bytes.fromhex(told["notice"])
    transport.close()
    raise RankLost(f"rank {topology.rank} cannot reach rank 0: {'; '.join(reasons)}")


def _addresses(told: dict[str, Any], store: Any) -> list[str]:
    """Return where rank 0 may be reached from here, the likeliest first."""
    local, *others = told["addresses"]
    addresses = []
    token = machine_token()
    if f"machine={token}" in local:
        addresses.append(best_address([local], token))
    for other in others:
        port = other.rpartition(":")[2]
        for host in dict.fromkeys((_host_of(store), told["host"])):
            if host:
                addresses.append(f"tcp://{host}:{port}")
    return addresses


def _host_of(store: Any) -> str:
    """Return where the store is served, as this rank knows it: mostly rank 0's machine."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", ""))


def _transport(topology: Topology, secret: bytes) -> SocketTransport:
    return SocketTransport(
        TransportOptions(
            secret=secret,
            job="collectives",
            identity={"rank": topology.rank},
            linger_s=_LINGER_S,
        )
    )
