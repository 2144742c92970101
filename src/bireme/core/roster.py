"""Who sits where: the scheduler's list of members, and who may take which rank.

Pure bookkeeping; :mod:`bireme.core.scheduler` decides what a death or a departure means.
"""

from collections.abc import Iterator

import msgspec

from bireme.errors import StateError
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import SCHEDULER, NodeId, Role
from bireme.wire.messages import JobConfig, Join, Lost, NodeInfo

__all__ = ("Roster", "Seat")


class Seat(msgspec.Struct):
    """A living member."""

    info: NodeInfo
    link: int | None
    """``None`` while its link is down and may come back."""
    heard_s: float


class Roster:
    """Gives ranks to those who join.

    Args:
        config: Size and policy of the job.
        host: Where the scheduler runs.
        software: A node with another version is refused.

    Guarantees:
        A rank has at most one living holder. Each holder has an incarnation of its own, larger
        than all that were given before.
    """

    def __init__(self, config: JobConfig, *, host: str, software: str) -> None:
        self._config = config
        self._software = software
        self._self = NodeInfo(SCHEDULER, 1, host, 0, ())
        self.last_incarnation = 1
        self._places = {
            Role.SERVER: [NodeId(Role.SERVER, rank) for rank in range(config.num_servers)],
            Role.WORKER: [NodeId(Role.WORKER, rank) for rank in range(config.num_workers)],
        }
        self.seats: dict[NodeId, Seat] = {}
        self.by_link: dict[int, NodeId] = {}
        """Members by link, those who have left included until the link closes."""
        self.lost: dict[NodeId, Lost] = {}
        """Workers that died and are not replaced."""
        self.left: dict[NodeId, NodeInfo] = {}
        """Workers that are done."""
        self._unranked: dict[int, Join] = {}

    def infos(self) -> tuple[NodeInfo, ...]:
        """Return everyone who is alive, the scheduler first."""
        return (self._self, *(self.seats[node].info for node in sorted(self.seats)))

    def workers(self) -> Iterator[Seat]:
        """Yield the living workers."""
        return (seat for node, seat in self.seats.items() if node.role is Role.WORKER)

    def servers(self) -> Iterator[Seat]:
        """Yield the living servers."""
        return (seat for node, seat in self.seats.items() if node.role is Role.SERVER)

    def awaited(self) -> list[int]:
        """Return the ranks of workers that barriers wait for, ascending."""
        gone = set(self.left)
        if self._config.death_policy is not DeathPolicy.WAIT:
            gone |= set(self.lost)
        return [node.rank for node in self._places[Role.WORKER] if node not in gone]

    @property
    def complete(self) -> bool:
        """Whether as many have come as there are places, with a rank or without."""
        return len(self.seats) + len(self._unranked) >= sum(map(len, self._places.values()))

    def missing(self) -> list[NodeId]:
        """Return the places that nobody has taken; those without a rank take any."""
        wanted = self._places[Role.SERVER] + self._places[Role.WORKER]
        free = [node for node in wanted if node not in self.seats]
        for join in self._unranked.values():
            node = next((node for node in free if node.role is join.role), None)
            if node is not None:
                free.remove(node)
        return free

    def admit(self, link: int, join: Join, now_s: float, *, running: bool) -> NodeInfo | None:
        """Return the member that a ``Join`` makes or confirms; ``None`` while it has to wait.

        Args:
            link: Where it came from.
            join: What it says of itself.
            now_s: For the limit on silence.
            running: The job is complete: only vacant places are given.

        Raises:
            StateError: There is no place for it; the message says why.
        """
        self._check(join)
        if link in self.by_link:
            return self.seats[self.by_link[link]].info if self._is_seated(link) else None
        if join.incarnation_hint or join.rank is not None:
            seat = self._own_seat(join)
            if seat is not None:
                self._bind(seat, link, now_s)
                return seat.info
            if join.incarnation_hint:
                raise StateError(
                    f"incarnation {join.incarnation_hint} was declared dead, and the job went on "
                    f"without it; start a new process"
                )
        if join.rank is None and not running:
            self._unranked[link] = join
            return None
        return self._seat(link, self._place_for(join, running=running), join, now_s)

    def rank_the_rest(self, now_s: float) -> list[NodeInfo]:
        """Give ranks to those without one, in order of host and process number."""
        rest = sorted(
            self._unranked.items(), key=lambda each: (each[1].host, each[1].pid, each[1].addresses)
        )
        self._unranked.clear()
        return [
            self._seat(link, self._place_for(join, running=False), join, now_s)
            for link, join in rest
        ]

    def holder_without_link(self, join: Join) -> NodeId | None:
        """Return who holds the rank that a new process asks for, if its link is down."""
        if join.rank is None:
            return None
        node = NodeId(join.role, join.rank)
        seat = self.seats.get(node)
        if seat is None or seat.link is not None or self._own_seat(join) is not None:
            return None
        return node

    def unbind(self, link: int) -> Seat | None:
        """Note that a link is down; return whose it was, if that one is alive."""
        self._unranked.pop(link, None)
        node = self.by_link.pop(link, None)
        seat = None if node is None else self.seats.get(node)
        if seat is None or seat.link != link:
            return None
        seat.link = None
        return seat

    def remove(self, node: NodeId) -> Seat:
        """Take a member out."""
        return self.seats.pop(node)

    def _is_seated(self, link: int) -> bool:
        return self.by_link[link] in self.seats

    def _check(self, join: Join) -> None:
        sizes = (self._config.num_workers, self._config.num_servers)
        if (join.num_workers, join.num_servers) != sizes:
            raise StateError(
                f"it was started for {join.num_workers} workers and {join.num_servers} servers, "
                f"this job has {sizes[0]} and {sizes[1]}"
            )
        if join.software and self._software and join.software != self._software:
            raise StateError(
                f"it runs version {join.software}, the scheduler {self._software}; install the "
                f"same on all machines"
            )
        if join.role is Role.SCHEDULER:
            raise StateError(f"the job has a scheduler, on {self._self.host}")

    def _own_seat(self, join: Join) -> Seat | None:
        """The seat of a process that lost its link, or the answer to its first ``Join``."""
        if join.rank is None:
            return None
        seat = self.seats.get(NodeId(join.role, join.rank))
        if seat is None:
            return None
        if join.incarnation_hint:
            return seat if seat.info.incarnation == join.incarnation_hint else None
        info = seat.info
        same = (info.host, info.pid, info.addresses) == (join.host, join.pid, join.addresses)
        return seat if same and seat.link is None else None

    def _place_for(self, join: Join, *, running: bool) -> NodeId:
        wanted = self._places[join.role]
        if join.rank is None:
            free = [node for node in wanted if node not in self.seats and node not in self.left]
            if not free:
                raise StateError(f"the job has all its {len(wanted)} {join.role}s")
            return free[0]
        node = NodeId(join.role, join.rank)
        if node not in wanted:
            raise StateError(f"there is no {node}: the job has {len(wanted)} {join.role}s")
        seat = self.seats.get(node)
        if seat is not None:
            info = seat.info
            raise StateError(
                f"{node} is alive: process {info.pid} on {info.host}; every process needs a rank "
                f"of its own"
            )
        if node in self.left:
            raise StateError(f"{node} is done and has left")
        assert not running or node in self.lost
        return node

    def _seat(self, link: int, node: NodeId, join: Join, now_s: float) -> NodeInfo:
        self.last_incarnation += 1
        info = NodeInfo(
            node,
            self.last_incarnation,
            join.host,
            join.pid,
            join.addresses,
            bandwidth=join.bandwidth,
            link_mbps=join.link_mbps,
        )
        self.lost.pop(node, None)
        self.seats[node] = Seat(info, link, now_s)
        self.by_link[link] = node
        return info

    def _bind(self, seat: Seat, link: int, now_s: float) -> None:
        if seat.link is not None:
            self.by_link.pop(seat.link, None)
        seat.link = link
        seat.heard_s = now_s
        self.by_link[link] = seat.info.node
