"""Which workers share a machine, and whether one of them is to push for all. Pure.

Every worker and the scheduler ask this of the same members, so that they agree without a word.
"""

from collections.abc import Iterable

import msgspec

from bireme.types.choices import DeathPolicy
from bireme.types.nodes import Role
from bireme.wire.messages import JobConfig, NodeInfo

__all__ = ("Neighbours", "neighbours_of", "relayed_hosts")


class Neighbours(msgspec.Struct, frozen=True):
    """The workers of one machine that has a relay."""

    leader: NodeInfo
    """In whose process the relay is: the one of the lowest rank."""
    ranks: tuple[int, ...]
    """All of them, ascending."""
    servers: tuple[NodeInfo, ...]
    """Those on other machines, which pushes go to through the relay."""
    turn: int
    """Position of the machine among all with workers: each begins with another server."""


def neighbours_of(host: str, nodes: Iterable[NodeInfo], config: JobConfig) -> Neighbours | None:
    """Return the workers of ``host`` if they have a relay.

    They have one where there are several, servers elsewhere, and an address of the first: it would
    spare nothing otherwise. Only jobs that end with a worker's death have relays.
    """
    if not config.relay or config.death_policy is not DeathPolicy.ABORT:
        return None
    infos = sorted(nodes, key=lambda info: info.node)
    workers = [info for info in infos if info.node.role is Role.WORKER]
    here = [info for info in workers if info.host == host]
    # Processes of one host in different containers do not reach each other's memory.
    mine = [info for info in here if _machine(info) == _machine(here[0])]
    away = tuple(info for info in infos if info.node.role is Role.SERVER and info.host != host)
    if len(mine) < 2 or not away or not mine[0].addresses:
        return None
    hosts = list(dict.fromkeys(info.host for info in workers))
    ranks = tuple(info.node.rank for info in mine)
    return Neighbours(mine[0], ranks, away, hosts.index(host))


def _machine(info: NodeInfo) -> str:
    """Return the part of a local address that says where it can be reached."""
    return info.addresses[0].partition("machine=")[2] if info.addresses else ""


def relayed_hosts(nodes: Iterable[NodeInfo], config: JobConfig) -> frozenset[str]:
    """Return the machines that have a relay: for the network their workers count as one."""
    infos = tuple(nodes)
    return frozenset(
        host
        for host in {info.host for info in infos if info.node.role is Role.WORKER}
        if neighbours_of(host, infos, config) is not None
    )
