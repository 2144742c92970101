"""The scheduler's part in measuring links: asks node after node, and settles what counts.

Owned by :class:`~bireme.core.membership.Membership` from when everyone has come until the job
begins. Which machines exchange bytes is decided in :mod:`bireme.placement.speeds`.
"""

from collections.abc import Iterable, Mapping, Sequence

from bireme.core.actions import Log
from bireme.placement.speeds import FAST_MBPS, Turn, agreed, doubtful, turns
from bireme.types.nodes import NodeId, Role
from bireme.wire.messages import JobConfig, NodeInfo, Probe, Probed, Target

__all__ = ("Survey", "is_worthwhile")

_TURN_S = 0.12
_PATIENCE_S = 1.0
_OPENING_S = 3.0
_MOST_BYTES = 16 << 20
"""Through one link in one turn."""
_LONG_S = 0.02
"""Links with longer round trips fill too slowly for a short measurement."""
_MOST_PASSES = 3
_MBIT = 1e6 / 8


def is_worthwhile(infos: Iterable[NodeInfo], config: JobConfig) -> bool:
    """Return whether there are links between machines whose speeds nobody stated."""
    stated: dict[str, bool] = {}
    for info in infos:
        if info.node.role is not Role.SCHEDULER:
            stated[info.host] = stated.get(info.host, False) or info.link_mbps > 0
    return config.link_probe and len(stated) > 1 and not all(stated.values())


class Survey:
    """Measures the links of the machines whose speed nobody stated.

    Args:
        infos: Everyone.
        first_number: Of its probes; numbers are never used twice.

    Attributes:
        messages: What is to be sent now; the owner takes it.
        due_s: When ``tick`` has something to do.
        done: Whether it is over.
        infos: Of whom it was made.
        measured: Mbit/s by machine; the best of what each pass found.
        notes: For the log, at the end.

    Guarantees:
        It ends, whatever nodes do: each turn has a limit, and there are three passes of ten turns
        at most. A machine that was not measured is not in ``measured``.
    """

    def __init__(self, infos: Sequence[NodeInfo], first_number: int, now_s: float) -> None:
        self._hosts: dict[str, list[NodeInfo]] = {}
        for info in sorted(infos, key=lambda each: each.node):
            if info.node.role is not Role.SCHEDULER:
                self._hosts.setdefault(info.host, []).append(info)
        self._servers = {
            host: Target(info.node, info.addresses)
            for host, members in self._hosts.items()
            for info in members[::-1]
            if info.node.role is Role.SERVER and info.addresses
        }
        self.number = first_number
        self.messages: list[tuple[NodeId, Probe]] = []
        self.done = False
        self.due_s = now_s
        self.measured: dict[str, float] = {}
        self.notes: list[Log] = []
        self.infos = tuple(infos)
        self._wanted = frozenset(
            host
            for host, members in self._hosts.items()
            if not any(info.link_mbps for info in members)
        )
        self._is_any_stated = len(self._wanted) < len(self._hosts)
        self._passes = 0
        self._turn_s = 0.0
        self._left: list[tuple[Turn, ...]] = []
        self._hubs: dict[NodeId, str] = {}
        """Of whose link each node that was asked tells."""
        self._heard: dict[NodeId, Probed] = {}
        self._open(now_s)

    def take(self, node: NodeId, message: Probed, now_s: float) -> None:
        """Take a node's answer."""
        if not self.done and message.number == self.number and node in self._hubs:
            self._heard[node] = message
            if len(self._heard) == len(self._hubs):
                self._next(now_s)

    def tick(self, now_s: float) -> None:
        """Go on without those who do not answer."""
        if not self.done and now_s >= self.due_s:
            self._next(now_s)

    def speeds(self) -> dict[str, float]:
        """Return the speeds that count, of machines that were measured; none if all are fast."""
        found = agreed(self.measured)
        are_fast = all(speed >= FAST_MBPS for speed in found.values())
        return {} if are_fast and not self._is_any_stated else found

    def _open(self, now_s: float) -> None:
        """Open every link that will be needed, and learn the round trips."""
        self._left = self._plan()
        ways: dict[NodeId, dict[NodeId, Target]] = {}
        for turn in (turn for each in self._left for turn in each):
            for node, targets in self._flows(turn).items():
                ways.setdefault(node, {}).update((each.node, each) for each in targets)
        self._hubs = dict.fromkeys(ways, "")
        self._ask({node: tuple(found.values()) for node, found in ways.items()}, 0, now_s)
        self.done = not ways

    def _plan(self) -> list[tuple[Turn, ...]]:
        others = [host for host in self._hosts if host not in self._servers]
        return turns(list(self._servers), others, self._wanted)

    def _flows(self, turn: Turn) -> Mapping[NodeId, tuple[Target, ...]]:
        """Return who asks which servers for bytes."""
        hub = self._servers.get(turn.hub)
        if hub is None:
            asker = self._hosts[turn.hub][0].node
            return {asker: tuple(self._servers[spoke] for spoke in turn.spokes)}
        return {self._hosts[spoke][0].node: (hub,) for spoke in turn.spokes}

    def _ask(
        self, ways: Mapping[NodeId, tuple[Target, ...]], most_bytes: int, now_s: float
    ) -> None:
        self.number += 1
        self._heard = {}
        self.due_s = now_s + self._turn_s + (_PATIENCE_S if self._turn_s else _OPENING_S)
        self.messages += [
            (node, Probe(self.number, self._turn_s, most_bytes, targets))
            for node, targets in ways.items()
        ]

    def _next(self, now_s: float) -> None:
        if not self._turn_s:
            if not self._may_go_on():
                self.done = True
                return
        else:
            self._note_speeds()
        while not self._left:
            self._passes += 1
            self._wanted = doubtful(self.measured)
            if not self._wanted or self._passes >= _MOST_PASSES:
                self.done = True
                return
            self._left = self._plan()
        turn = self._left.pop(0)
        self._hubs = {}
        ways: dict[NodeId, tuple[Target, ...]] = {}
        for each in turn:
            flows = self._flows(each)
            self._hubs |= dict.fromkeys(flows, each.hub)
            ways |= flows
        num_flows = max(len(each.spokes) for each in turn)
        self._ask(ways, _MOST_BYTES // num_flows, now_s)

    def _may_go_on(self) -> bool:
        """Look at the first answers: links must be open, and short enough to be filled."""
        longest_s = max((each.round_trip_s for each in self._heard.values()), default=0.0)
        failed = sorted({node for each in self._heard.values() for node in each.failed})
        silent = sorted(set(self._hubs) - set(self._heard))
        why = ""
        if failed:
            why = f"{failed[0]} cannot be reached"
        elif silent:
            why = f"{silent[0]} does not answer in time"
        elif longest_s > _LONG_S:
            why = f"a round trip takes {longest_s * 1e3:.0f} ms"
        if why:
            text = f"links are not measured, since {why}; BIREME_LINK_MBPS can state their speeds"
            self.notes.append(Log("info", text))
            return False
        self._turn_s = _TURN_S
        return True

    def _note_speeds(self) -> None:
        found: dict[str, float] = {}
        silent = {hub for node, hub in self._hubs.items() if node not in self._heard}
        for node, hub in self._hubs.items():
            if hub not in silent:
                speed = self._heard[node].bytes_per_s / _MBIT
                found[hub] = found.get(hub, 0.0) + speed
        for hub, speed in found.items():
            self.measured[hub] = max(speed, self.measured.get(hub, 0.0))
