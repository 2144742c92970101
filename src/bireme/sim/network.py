"""A network under virtual time that delays, drops, duplicates and reorders by seed.

Used by :mod:`bireme.sim.process`. A connection has two ends, each with a link number of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from bireme.core.events import ConnectFailed, Event, Linked, Lost, Received
from bireme.errors import ConfigError
from bireme.sim.clock import Clock
from bireme.sim.wires import Wires
from bireme.types.nodes import NodeId
from bireme.wire.messages import Message
from bireme.wire.recall import Codec

__all__ = ("Endpoint", "Faults", "Network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How bad the network is."""

    drop: float = 0.0
    """Chance of a message to be lost, 0 to 1."""
    duplicate: float = 0.0
    """Chance of a message to arrive twice."""
    least_delay_s: float = 0.0001
    most_delay_s: float = 0.0001
    """Delays are uniform between these."""
    reorder: bool = False
    """Messages of one link may overtake each other."""
    link_mbps: Mapping[str, float] | None = None
    """Speed of each machine's link, each way; those at the network's beginning count. Machines that
    are not named, and all without it, have links without limits."""

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 0 and < 1, got {getattr(self, name)}")
        if not 0 <= self.least_delay_s <= self.most_delay_s:
            raise ConfigError(
                f"delays must be 0 <= least <= most, got {self.least_delay_s}, {self.most_delay_s}"
            )


_BURST_BYTES = 64 << 10


class Endpoint(Protocol):
    """A process that can be reached."""

    host: str
    """The machine that it runs on."""

    @property
    def alive(self) -> bool:
        """Whether anybody listens."""

    def receive(self, event: Event) -> None:
        """Take an event now."""


class _End:
    """One end of a connection."""

    __slots__ = ("link", "open", "owner", "peer", "ready_s")

    def __init__(self, link: int, owner: Endpoint) -> None:
        self.link = link
        self.owner = owner
        self.peer: _End | None = None
        self.open = True
        self.ready_s = 0.0
        """When the last message that was sent to this end arrives."""


class Network:
    """Carries messages between processes.

    Args:
        clock: The virtual time.
        seed: Everything that is left to chance follows from it.
        faults: May be exchanged while the network runs.
        check_codec: Send every message through the wire's codec and back.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        check_codec: bool = True,
    ) -> None:
        self._clock = clock
        self._random = Random(seed)
        self.faults = faults or Faults()
        speeds = self.faults.link_mbps
        self._wires = None if speeds is None else Wires(clock, speeds, burst_bytes=_BURST_BYTES)
        self._codec = Codec() if check_codec else None
        self._ends: dict[int, _End] = {}
        self._links: dict[int, set[int]] = {}
        """Open links by ``id`` of their owner."""
        self._last_link = 0
        self.num_messages = 0
        """Messages sent so far."""

    def connect(self, owner: Endpoint, node: NodeId, target: Endpoint | None) -> None:
        """Open a link from ``owner`` to ``target``; both hear of it after a while."""
        self._clock.after(self._delay_s(), self._connected, owner, node, target)

    def send(self, link: int, message: Message, payload: tuple[object, ...]) -> None:
        """Send by a link; nothing happens when it is closed."""
        end = self._ends.get(link)
        if end is None or not end.open or end.peer is None:
            return
        self.num_messages += 1
        faults, body = self.faults, _joined(payload)
        if self._codec is not None:
            message = _through(self._codec, message, body)
        if faults.drop and self._random.random() < faults.drop:
            return
        event = Received(end.peer.link, message, body)
        self._bring(end, end.peer, event)
        if faults.duplicate and self._random.random() < faults.duplicate:
            self._bring(end, end.peer, event)

    def close(self, link: int, reason: str = "closed by the peer") -> None:
        """Close a link at this end; the other end hears of it after what was sent."""
        end = self._ends.get(link)
        if end is None:
            return
        self._forget(end)
        peer = end.peer
        if peer is not None:
            when_s = max(self._clock.now_s + self._delay_s(), peer.ready_s)
            self._clock.at(when_s, self._lose, peer, reason)

    def cut(self, link: int) -> None:
        """Break a link; both ends hear of it, and what is under way is lost."""
        end = self._ends.get(link)
        if end is None or end.peer is None:
            return
        for each in (end, end.peer):
            self._lose(each, "connection reset")

    def links_of(self, owner: Endpoint) -> list[int]:
        """Return the open links of a process."""
        return sorted(self._links.get(id(owner), ()))

    def _connected(self, owner: Endpoint, node: NodeId, target: Endpoint | None) -> None:
        if not owner.alive:
            return
        if target is None or not target.alive:
            owner.receive(ConnectFailed(node, "connection refused"))
            return
        near, far = self._new_end(owner), self._new_end(target)
        near.peer, far.peer = far, near
        owner.receive(Linked(near.link, node))

    def _new_end(self, owner: Endpoint) -> _End:
        self._last_link += 1
        end = self._ends[self._last_link] = _End(self._last_link, owner)
        self._links.setdefault(id(owner), set()).add(end.link)
        return end

    def _forget(self, end: _End) -> None:
        end.open = False
        del self._ends[end.link]
        self._links[id(end.owner)].discard(end.link)

    def _bring(self, sender: _End, end: _End, event: Received) -> None:
        if self._wires is None:
            self._carry(end, event)
            return
        size_bytes = len(event.payload) if isinstance(event.payload, bytes) else 0
        arrive = partial(self._carry, end, event)
        self._wires.carry(sender.owner.host, end.owner.host, size_bytes, arrive)

    def _carry(self, end: _End, event: Received) -> None:
        when_s = self._clock.now_s + self._delay_s()
        if when_s > end.ready_s:
            end.ready_s = when_s
        elif not self.faults.reorder:
            when_s = end.ready_s
        self._clock.at(when_s, self._arrive, end, event)

    def _arrive(self, end: _End, event: Received) -> None:
        if end.open and end.owner.alive:
            end.owner.receive(event)

    def _lose(self, end: _End, reason: str) -> None:
        if end.open:
            self._forget(end)
            if end.owner.alive:
                end.owner.receive(Lost(end.link, reason))

    def _delay_s(self) -> float:
        faults = self.faults
        if faults.least_delay_s == faults.most_delay_s:
            return faults.least_delay_s
        return self._random.uniform(faults.least_delay_s, faults.most_delay_s)


def _joined(payload: tuple[object, ...]) -> object:
    if len(payload) == 1:
        return payload[0]
    return b"".join(bytes(part) for part in payload) if payload else None  # type: ignore[call-overload]


def _through(codec: Codec, message: Message, payload: object) -> Message:
    size = len(payload) if isinstance(payload, bytes) else 0
    decoded, announced = codec.decode(codec.encode(message, size))
    if decoded != message or announced != size:
        raise ConfigError(f"the wire changed {message} into {decoded}")
    return decoded
