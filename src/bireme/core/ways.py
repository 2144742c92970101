"""A relay's links to the servers of other machines: made, attached, and made again.

Called by :mod:`bireme.core.relay`.
"""

from collections.abc import Iterable

from bireme.core.actions import Action, Connect, Log, Send
from bireme.core.member import RETRY_S
from bireme.types.nodes import NodeId
from bireme.wire.messages import Attach, NodeInfo

__all__ = ("Way", "Ways")

_ATTACH_RESEND_S = 1.0


class Way:
    """The link to one server."""

    __slots__ = ("addresses", "attached", "due_s", "link", "node")

    def __init__(self, node: NodeId, addresses: tuple[str, ...]) -> None:
        self.node = node
        self.addresses = addresses
        self.link: int | None = None
        self.attached = False
        self.due_s: float | None = None
        """When to try again: to connect without a link, to attach with one."""


class Ways:
    """All links to servers.

    Args:
        name: Whose name the relay bears towards them.
        incarnation: Of that worker.
        servers: Those it speaks to.
    """

    def __init__(self, name: NodeId, incarnation: int, servers: Iterable[NodeInfo]) -> None:
        self._name = name
        self._incarnation = incarnation
        self.by_rank = {info.node.rank: Way(info.node, info.addresses) for info in servers}
        self.by_link: dict[int, Way] = {}

    def start(self) -> list[Action]:
        """Begin: connect to all."""
        return [Connect(way.node, way.addresses) for way in self.by_rank.values()]

    def next_deadline_s(self) -> float | None:
        """Return when ``tick`` has something to do."""
        due = [way.due_s for way in self.by_rank.values() if way.due_s is not None]
        return min(due, default=None)

    def link_to(self, server: int) -> int | None:
        """Return the link by which a server takes messages, if it takes any now."""
        way = self.by_rank[server]
        return way.link if way.attached else None

    def linked(self, link: int, node: NodeId, view: int, now_s: float) -> list[Action]:
        """A link is up: say who is speaking."""
        way = self.by_rank[node.rank]
        if way.link is not None:
            self.by_link.pop(way.link, None)
        way.link, way.attached = link, False
        way.due_s = now_s + _ATTACH_RESEND_S
        self.by_link[link] = way
        return [self._attach(link, view)]

    def attached(self, link: int) -> int | None:
        """Note that a server takes messages now; return its rank if it did not before."""
        way = self.by_link[link]
        if way.attached:
            return None
        way.attached, way.due_s = True, None
        return way.node.rank

    def failed(self, server: int, now_s: float) -> None:
        """Note that a connection was refused."""
        self.by_rank[server].due_s = now_s + RETRY_S

    def lost(self, link: int, reason: str, *, is_needed: bool) -> list[Action]:
        """A link is gone: make another one.

        Args:
            link: To a server.
            reason: Why it is gone.
            is_needed: Whether anything is under way; servers leave at the job's end.
        """
        way = self.by_link.pop(link)
        if way.link != link:
            return []
        way.link, way.attached, way.due_s = None, False, None
        text = f"the relay lost the link to {way.node}: {reason}"
        return [Log("warning" if is_needed else "debug", text), Connect(way.node, way.addresses)]

    def tick(self, view: int, now_s: float) -> list[Action]:
        """Try again what is due."""
        actions: list[Action] = []
        for way in self.by_rank.values():
            if way.due_s is None or now_s < way.due_s:
                continue
            if way.link is None:
                way.due_s = None
                actions.append(Connect(way.node, way.addresses))
            else:
                way.due_s = now_s + _ATTACH_RESEND_S
                actions.append(self._attach(way.link, view))
        return actions

    def _attach(self, link: int, view: int) -> Send:
        return Send(link, Attach(self._name, self._incarnation, view))
