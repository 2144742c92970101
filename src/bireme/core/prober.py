"""A node's part in measuring links before a job begins: it exchanges bytes with servers.

Owned by :class:`~bireme.core.member.Member`, which passes on what the scheduler asks for. Servers
answer each ``Ping`` with as many bytes and remember nothing.
"""

import itertools
from typing import TYPE_CHECKING

from bireme.core.actions import Action, Close, Connect, Fill
from bireme.core.events import ConnectFailed, Event, Linked, Lost, Received
from bireme.wire.messages import Ping, Pong, Probe, Probed
from bireme.wire.probe import MOST_PING_BYTES

if TYPE_CHECKING:
    from bireme.types.nodes import NodeId

__all__ = ("Prober",)

SETTLING = 1 / 3
"""Part of a measurement that does not count: buckets of shaped links empty, windows open."""

_NUM_UNDER_WAY = 4
_LEAST_BYTES = 4 << 10
_SMALL_BYTES = 1 << 10
_NUM_SMALL = 3
_QUEUE_S = 0.015
"""How long pings shall wait for each other: enough to keep a link busy, and soon over. They grow
or shrink towards it, by 2 at most in each round trip."""
_DRAIN_S = 0.5


class _Flow:
    """What passes between this node and one server.

    The bytes of a ping count as having come evenly since the one before it came, so that what is
    counted between two moments does not depend on how often something comes.
    """

    __slots__ = (
        "adapted_s",
        "counted",
        "last_s",
        "least_s",
        "link",
        "size",
        "start_s",
        "total",
        "under_way",
    )

    def __init__(self) -> None:
        self.link: int | None = None
        self.least_s = float("inf")
        """The shortest round trip."""
        self.under_way: dict[int, float] = {}
        """When each ping left."""
        self.restart()

    def restart(self) -> None:
        self.under_way.clear()
        self.size = _LEAST_BYTES
        self.total = 0
        self.counted = 0.0
        self.start_s: float | None = None
        """From when on it counts."""
        self.last_s = self.adapted_s = 0.0

    def took(self, size_bytes: int, now_s: float, end_s: float) -> None:
        """Note that a ping's bytes have come back."""
        self.total += size_bytes
        if self.start_s is not None and now_s > self.last_s:
            counts_s = min(now_s, end_s) - max(self.last_s, self.start_s)
            self.counted += size_bytes * max(0.0, counts_s) / (now_s - self.last_s)
        self.last_s = now_s

    def adapt(self, sent_s: float, now_s: float) -> None:
        self.least_s = min(self.least_s, now_s - sent_s)
        if sent_s < self.adapted_s:
            return
        self.adapted_s = now_s
        waited_s = now_s - sent_s - self.least_s
        factor = min(2.0, max(0.5, _QUEUE_S / max(waited_s, 1e-6)))
        self.size = max(_LEAST_BYTES, min(int(self.size * factor), MOST_PING_BYTES))

    def bytes_per_s(self, probe: Probe, end_s: float) -> float:
        if self.start_s is None:
            return 0.0
        if self.total >= probe.most_bytes:
            end_s = min(end_s, self.last_s)
        return self.counted / (end_s - self.start_s) if end_s > self.start_s else 0.0


class Prober:
    """Carries out ``Probe`` messages, one at a time.

    Attributes:
        outcome: The answer to the newest one, until its owner takes it.

    Guarantees:
        It answers within the time asked for and half a second, once its links are open or have
        failed. Beyond the bytes asked for, what is under way on each link ends within that time.
    """

    def __init__(self) -> None:
        self.outcome: Probed | None = None
        self.due_s: float | None = None
        """When ``tick`` has something to do."""
        self._probe: Probe | None = None
        self._flows: dict[NodeId, _Flow] = {}
        self._by_link: dict[int, _Flow] = {}
        self._connecting: dict[NodeId, int] = {}
        """Answers to ``Connect`` that are still to come, by node."""
        self._active: dict[NodeId, _Flow] = {}
        self._began_s: float | None = None
        self._numbers = itertools.count()
        self._actions: list[Action] = []

    def concerns(self, event: Event) -> bool:
        """Return whether an event is about a link of this room."""
        if type(event) is Linked or type(event) is ConnectFailed:
            return event.node in self._connecting
        return (type(event) is Lost or type(event) is Received) and event.link in self._by_link

    def begin(self, probe: Probe, now_s: float) -> list[Action]:
        """Start to measure; what was under way is given up."""
        self._probe, self._began_s, self.due_s, self.outcome = probe, None, None, None
        self._active = {}
        for target in probe.targets:
            flow = self._active[target.node] = self._flows.setdefault(target.node, _Flow())
            flow.restart()
            if flow.link is None and target.node not in self._connecting:
                self._connecting[target.node] = 1
                self._actions.append(Connect(target.node, target.addresses))
        self._fill_if_ready(now_s)
        return self._take()

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take an event that concerns this room."""
        if type(event) is Linked:
            self._linked(event)
        elif type(event) is ConnectFailed:
            del self._connecting[event.node]
        elif type(event) is Lost:
            flow = self._by_link.pop(event.link)
            flow.link = None
            flow.under_way.clear()
        elif type(event) is Received and type(event.message) is Pong:
            self._pong(self._by_link[event.link], event.message, now_s)
        if self._began_s is None:
            self._fill_if_ready(now_s)
        else:
            self._end_if_done(now_s)
        return self._take()

    def tick(self, now_s: float) -> list[Action]:
        """End what has lasted long enough."""
        if self.due_s is not None and now_s >= self.due_s:
            self._end()
        return self._take()

    def close(self) -> list[Action]:
        """The job begins: close all links."""
        self._probe = self._began_s = self.due_s = None
        self._actions += [Close(link) for link in self._by_link]
        self._by_link.clear()
        self._flows.clear()
        self._active.clear()
        return self._take()

    def _linked(self, event: Linked) -> None:
        del self._connecting[event.node]
        flow = self._flows.get(event.node)
        if flow is None or flow.link is not None:
            self._actions.append(Close(event.link))
            return
        flow.link = event.link
        self._by_link[event.link] = flow

    def _fill_if_ready(self, now_s: float) -> None:
        probe = self._probe
        if probe is None or any(node in self._connecting for node in self._active):
            return
        self._began_s = now_s
        self.due_s = now_s + probe.duration_s + _DRAIN_S
        for flow in self._active.values():
            flow.last_s = now_s
            for _ in range(_NUM_UNDER_WAY if probe.duration_s else 1):
                self._ping(flow, now_s)
        self._end_if_done(now_s)

    def _ping(self, flow: _Flow, now_s: float) -> None:
        assert self._probe is not None
        if flow.link is None:
            return
        number = next(self._numbers)
        flow.under_way[number] = now_s
        size = flow.size if self._probe.duration_s else _SMALL_BYTES
        self._actions.append(Fill(flow.link, Ping(number, size)))

    def _pong(self, flow: _Flow, pong: Pong, now_s: float) -> None:
        sent_s = flow.under_way.pop(pong.number, None)
        probe, began_s = self._probe, self._began_s
        if sent_s is None or probe is None or began_s is None:
            return
        end_s = began_s + probe.duration_s
        if flow.start_s is None and now_s >= began_s + SETTLING * probe.duration_s:
            flow.start_s = began_s + SETTLING * probe.duration_s
        flow.took(pong.size_bytes, now_s, end_s)
        if flow.start_s is None and flow.total >= SETTLING * probe.most_bytes:
            flow.start_s = now_s
        flow.adapt(sent_s, now_s)
        if probe.duration_s:
            goes_on = now_s < end_s and flow.total < probe.most_bytes
        else:
            goes_on = flow.total < _NUM_SMALL * _SMALL_BYTES
        if goes_on:
            self._ping(flow, now_s)

    def _end_if_done(self, now_s: float) -> None:
        if self._probe is not None and not any(flow.under_way for flow in self._active.values()):
            self._end()

    def _end(self) -> None:
        probe, began_s = self._probe, self._began_s
        assert probe is not None
        assert began_s is not None
        reached = [flow for flow in self._active.values() if flow.total]
        end_s = began_s + probe.duration_s
        self.outcome = Probed(
            probe.number,
            sum(flow.bytes_per_s(probe, end_s) for flow in reached),
            max((flow.least_s for flow in reached), default=0.0),
            tuple(node for node, flow in self._active.items() if not flow.total),
        )
        self._probe = self._began_s = self.due_s = None

    def _take(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions
