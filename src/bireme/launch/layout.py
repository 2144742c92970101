"""Which process runs on which host. Pure; every plan of several hosts is made by it.

Ranks go host after host, in the order in which the user named them, and on each host slot after
slot: the same hosts always give the same places.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bireme.errors import ConfigError
from bireme.launch.hosts import Host
from bireme.types.nodes import SCHEDULER, NodeId, server, worker

__all__ = ("Places", "lay_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The nodes of one host, in the order in which they are started."""

    host: Host
    nodes: tuple[NodeId, ...]
    num_workers: int


def lay_out(
    hosts: Sequence[Host], num_workers: int, num_servers: int, scheduler_host: str = ""
) -> list[Places]:
    """Return which nodes run where; hosts without any are left out.

    Workers fill the slots of one host after another. Where nobody named slots, they are spread
    evenly; where some did, a host without has one. Servers take no slots and are spread evenly.
    The scheduler is on the first host, or on ``scheduler_host``, which need not be among them.

    Args:
        hosts: At least one, in order.
        num_workers: >= 1.
        num_servers: 0 for a job without servers and scheduler.
        scheduler_host: A name as in ``hosts``, or another one; empty for the first host.

    Raises:
        ConfigError: There are not enough slots.

    Example:
        >>> for place in lay_out([Host(name="a", slots=2), Host(name="b", slots=2)], 3, 1):
        ...     print(place.host, place.nodes)
        a (H, S[0], W[0], W[1])
        b (W[2],)
    """
    counts = _worker_counts(hosts, num_workers)
    nodes: list[list[NodeId]] = [[] for _ in hosts]
    hosts = list(hosts)
    if num_servers:
        where = _index_of(hosts, scheduler_host)
        if where == len(hosts):
            hosts.append(Host(name=scheduler_host))
            nodes.append([])
            counts.append(0)
        nodes[where].append(SCHEDULER)
    # Hosts without workers serve nothing: they were left out by the number of workers.
    serving = [index for index, count in enumerate(counts) if count]
    for rank in range(num_servers):
        nodes[serving[rank % len(serving)]].append(server(rank))
    rank = 0
    for index, count in enumerate(counts):
        nodes[index] += [worker(rank + slot) for slot in range(count)]
        rank += count
    return [
        Places(host=host, nodes=tuple(mine), num_workers=count)
        for host, mine, count in zip(hosts, nodes, counts, strict=True)
        if mine
    ]


def _index_of(hosts: Sequence[Host], name: str) -> int:
    """Return where ``name`` is in ``hosts``; behind them if it is not there, 0 if it is empty."""
    if not name:
        return 0
    return next((index for index, host in enumerate(hosts) if host.name == name), len(hosts))


def _worker_counts(hosts: Sequence[Host], num_workers: int) -> list[int]:
    if all(host.slots is None for host in hosts):
        fewest, more = divmod(num_workers, len(hosts))
        return [fewest + (index < more) for index in range(len(hosts))]
    left = num_workers
    counts = []
    for host in hosts:
        counts.append(min(left, 1 if host.slots is None else host.slots))
        left -= counts[-1]
    if left:
        raise ConfigError(
            f"{num_workers} workers do not fit into the {num_workers - left} slots of "
            f"{len(hosts)} hosts; name more slots (-H host:slots), or start fewer"
        )
    return counts
