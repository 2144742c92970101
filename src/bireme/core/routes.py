"""A worker's links to the servers: opened, attached, opened again when they break.

Called by :mod:`bireme.core.worker`.
"""

from bireme.core.actions import Action, Connect, Log, Send
from bireme.core.member import RETRY_S
from bireme.types.nodes import NodeId, Role
from bireme.wire.messages import Attach, NodeInfo

__all__ = ("Route", "Routes")

_ATTACH_RESEND_S = 1.0


class Route:
    """The way to one server."""

    __slots__ = ("attached", "due_s", "info", "link")

    def __init__(self, info: NodeInfo) -> None:
        self.info = info
        self.link: int | None = None
        self.attached = False
        """The server takes this worker's messages."""
        self.due_s: float | None = None
        """When to try again: to connect without a link, to attach with one."""


class Routes:
    """Keeps one link to each server. A lost one is opened again until the job ends."""

    def __init__(self) -> None:
        self._routes: dict[int, Route] = {}
        self._by_link: dict[int, Route] = {}
        self._num_attached = 0

    @property
    def complete(self) -> bool:
        """Whether every server is attached."""
        return self._num_attached == len(self._routes)

    def ranks(self) -> list[int]:
        """Return the servers' ranks, ascending."""
        return sorted(self._routes)

    def begin(self, nodes: list[NodeInfo]) -> list[Action]:
        """Connect to the servers among ``nodes``."""
        actions: list[Action] = []
        for info in nodes:
            if info.node.role is Role.SERVER:
                self._routes[info.node.rank] = Route(info)
                actions.append(Connect(info.node, info.addresses))
        return actions

    def link_to(self, server: int) -> int | None:
        """Return the link to an attached server."""
        route = self._routes.get(server)
        return route.link if route is not None and route.attached else None

    def server_at(self, link: int) -> int | None:
        """Return the server at the other end of a link."""
        route = self._by_link.get(link)
        return None if route is None else route.info.node.rank

    def links(self) -> list[int]:
        """Return all links that are up."""
        return list(self._by_link)

    def linked(self, link: int, node: NodeId, attach: Attach, now_s: float) -> list[Action]:
        """Take a new link to a server and attach by it."""
        route = self._routes[node.rank]
        if route.link is not None:
            self._by_link.pop(route.link, None)
        route.link = link
        self._detach(route)
        route.due_s = now_s + _ATTACH_RESEND_S
        self._by_link[link] = route
        return [Send(link, attach)]

    def attached(self, link: int) -> None:
        """Note that a server takes this worker's messages."""
        route = self._by_link[link]
        self._num_attached += not route.attached
        route.attached = True
        route.due_s = None

    def lost(self, link: int, reason: str, *, is_expected: bool = False) -> list[Action]:
        """A link is gone: open it again.

        Args:
            link: The link.
            reason: Why.
            is_expected: The job is ending, and servers may leave before this worker does.
        """
        route = self._by_link.pop(link, None)
        if route is None or route.link != link:
            return []
        route.link = None
        self._detach(route)
        node = route.info.node
        text = f"lost the link to {node}: {reason}"
        level = "debug" if is_expected else "warning"
        return [Log(level, text), Connect(node, route.info.addresses)]

    def connect_failed(self, node: NodeId, now_s: float) -> None:
        """Try again in a moment."""
        self._routes[node.rank].due_s = now_s + RETRY_S

    def tick(self, attach: Attach, now_s: float) -> list[Action]:
        """Try again what is due."""
        actions: list[Action] = []
        if self.complete:
            return actions
        for route in self._routes.values():
            if route.due_s is None or now_s < route.due_s:
                continue
            if route.link is None:
                route.due_s = None
                actions.append(Connect(route.info.node, route.info.addresses))
            else:
                route.due_s = now_s + _ATTACH_RESEND_S
                actions.append(Send(route.link, attach))
        return actions

    def next_deadline_s(self) -> float | None:
        """Return when ``tick`` has something to do."""
        if self.complete:
            return None
        due = [route.due_s for route in self._routes.values() if route.due_s is not None]
        return min(due, default=None)

    def _detach(self, route: Route) -> None:
        self._num_attached -= route.attached
        route.attached = False
