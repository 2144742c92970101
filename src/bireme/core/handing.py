"""A worker's way to the relay of its machine: which pushes take it, and when it is over.

Called by :mod:`bireme.core.worker` and the desk.
"""

from bireme.core.actions import Action, Close, Connect, Log, OpenRelay, Send
from bireme.core.member import RETRY_S
from bireme.core.neighbours import Neighbours
from bireme.core.requests import PullRequest, PushRequest, Request
from bireme.types.choices import Consistency
from bireme.types.nodes import NodeId
from bireme.wire.messages import Attach, JobConfig, KeyDecl

__all__ = ("Handing",)

_ATTACH_RESEND_S = 0.5
_LIMIT_S = 10.0
"""How long to try to reach the relay before this worker goes without, for good."""


class Handing:
    """The link to a relay. A worker attaches before its first push, or never.

    Once it is lost it is not opened again: a relay waits for the pushes of all who are attached,
    and must know of each whether it will hear of a push.
    """

    def __init__(self) -> None:
        self.link: int | None = None
        self.attached = False
        self._neighbours: Neighbours | None = None
        self._servers: frozenset[int] = frozenset()
        self._due_s: float | None = None
        self._limit_s = 0.0
        self._told: set[Consistency] = set()

    @property
    def settled(self) -> bool:
        """Whether it is known if pushes take this way."""
        return self._neighbours is None or self.attached

    def begin(
        self,
        neighbours: Neighbours | None,
        me: NodeId,
        view: int,
        incarnation: int,
        config: JobConfig,
        now_s: float,
    ) -> list[Action]:
        """Look for the relay, or open it if it is this worker's to do."""
        self._neighbours = neighbours
        if neighbours is None:
            return []
        self._limit_s = now_s + _LIMIT_S
        self._servers = frozenset(info.node.rank for info in neighbours.servers)
        actions: list[Action] = []
        if neighbours.leader.node == me:
            names = ", ".join(f"W[{rank}]" for rank in neighbours.ranks)
            away = ", ".join(str(info.node) for info in neighbours.servers)
            text = f"relays what {names} on {neighbours.leader.host} push to {away}"
            actions += [OpenRelay(neighbours, config, incarnation, view), Log("info", text)]
        return [*actions, self._connect()]

    def linked(self, link: int, attach: Attach, now_s: float) -> list[Action]:
        """Take the new link to the relay and attach by it."""
        if self._neighbours is None:
            return [Close(link)]
        self.link = link
        self._due_s = now_s + _ATTACH_RESEND_S
        return [Send(link, attach)]

    def heard(self, link: int) -> bool:
        """Take the relay's ``Attached``; return whether it was that."""
        if link != self.link or self._neighbours is None:
            return False
        self.attached, self._due_s = True, None
        return True

    def connect_failed(self, now_s: float) -> None:
        """Try again in a moment."""
        self._due_s = now_s + RETRY_S

    def lost(self, reason: str, *, is_expected: bool) -> list[Action]:
        """The link is gone: this worker pushes for itself from now on."""
        return self._give_up(f"lost the relay: {reason}", is_expected=is_expected)

    def tick(self, attach: Attach, now_s: float) -> list[Action]:
        """Try again what is due, or give up."""
        if self._due_s is None or now_s < self._due_s or self.settled:
            return []
        if now_s >= self._limit_s:
            return self._give_up(f"did not reach the relay within {_LIMIT_S:g} s")
        if self.link is None:
            self._due_s = None
            return [self._connect()]
        self._due_s = now_s + _ATTACH_RESEND_S
        return [Send(self.link, attach)]

    def next_deadline_s(self) -> float | None:
        """Return when ``tick`` has something to do."""
        return self._due_s

    def takes(self, request: Request) -> bool:
        """Return whether a new push or pull takes this way."""
        if not self.attached or request.server not in self._servers:
            return False
        return isinstance(request, PushRequest | PullRequest) and request.is_pooled

    def declared(self, key: KeyDecl) -> list[Action]:
        """Say once of each kind of keys whose pushes do not take this way that they do not."""
        if not self.attached or key.consistency in self._told:
            return []
        self._told.add(key.consistency)
        if key.consistency is Consistency.SYNC:
            return []
        text = f"pushes of {key.consistency} keys go to the servers directly: relays add up rounds"
        return [Log("info", text)]

    def _connect(self) -> Connect:
        assert self._neighbours is not None
        leader = self._neighbours.leader
        return Connect(leader.node, leader.addresses)

    def _give_up(self, why: str, *, is_expected: bool = False) -> list[Action]:
        link, self.link = self.link, None
        self._neighbours, self.attached, self._due_s = None, False, None
        text = f"{why}; this worker pushes to the servers itself"
        actions: list[Action] = [Log("debug" if is_expected else "warning", text)]
        return actions if link is None else [*actions, Close(link)]
