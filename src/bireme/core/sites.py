"""From the members of a job to the machines they run on: shares of servers, sizes of frames. Pure.

Called by :mod:`bireme.core.scheduler` when the job is complete.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

from bireme.placement.links import Site, frame_bytes, spread
from bireme.types.nodes import Role
from bireme.wire.messages import JobConfig, NodeInfo

__all__ = ("Way", "server_weights", "ways", "with_frames")

_BYTES_PER_MBIT = 1e6 / 8
_SOCKET_BUNDLE_BYTES = 1 << 20
"""What comes over a socket takes memory of its own on a server until it is added: with twice as
much a server of 20 MB held up to 2.4 times its values."""
_SHARED = "shm+unix:"


def server_weights(
    nodes: Iterable[NodeInfo], relayed: Collection[str] = frozenset()
) -> list[float]:
    """Return each server's share of the bytes, by rank; some may be 0.

    Args:
        nodes: Who takes part.
        relayed: Machines whose workers send each byte once for all of them.

    Weights that somebody declared (``bandwidth`` other than 1) are taken as they are. Otherwise the
    machines share by the speeds of their links and by who runs on them: a link that nobody stated
    counts as fast as the mean of the others. The servers of one machine share equally.
    """
    infos = sorted(nodes, key=lambda info: info.node)
    servers = [info for info in infos if info.node.role is Role.SERVER]
    if any(info.bandwidth != 1.0 for info in servers):
        return [info.bandwidth for info in servers]
    by_host = _by_host(infos)
    sites = [
        site._replace(num_workers=1) if host in relayed else site
        for host, site in zip(by_host, _sites(list(by_host.values())), strict=True)
    ]
    shares = dict(zip(by_host, spread(sites).shares, strict=True))
    counts = {host: site.num_servers for host, site in zip(by_host, sites, strict=True)}
    return [shares[info.host] / counts[info.host] for info in servers]


class Way(NamedTuple):
    """What is known of a machine's link, and what its servers hold."""

    host: str
    mbps: float
    """0 where it is not known: it is fast, or could not be measured."""
    source: str
    """``stated``, ``measured`` or ``unknown``."""
    share: float
    """Part of all bytes."""

    def __str__(self) -> str:
        speed = f"{self.mbps:.0f} Mbit/s ({self.source})" if self.mbps else "of unknown speed"
        return f"the link of {self.host} is {speed}; servers there hold {self.share:.0%}"


def ways(
    nodes: Iterable[NodeInfo], measured: Collection[str] | Mapping[str, float], weights: list[float]
) -> tuple[Way, ...]:
    """Return what is known of every machine's link, for people.

    Args:
        nodes: Who takes part, with the speeds that count.
        measured: Machines whose speed was measured.
        weights: Each server's, by rank.
    """
    total = math.fsum(weights)
    found = []
    for host, group in _by_host(nodes).items():
        ranks = [info.node.rank for info in group if info.node.role is Role.SERVER]
        mbps = _speed(group)
        known = "measured" if host in measured else "stated"
        share = math.fsum(weights[rank] for rank in ranks) / total
        found.append(Way(host, mbps, known if mbps else "unknown", share))
    return tuple(found)


def with_frames(config: JobConfig, nodes: Iterable[NodeInfo]) -> JobConfig:
    """Return the job's configuration with smaller slices and bundles where links are slow.

    Only links whose speed is known count, and only in a job of several machines. Bundles are
    smaller also where values come over sockets.
    """
    infos = [info for info in nodes if info.node.role in (Role.WORKER, Role.SERVER)]
    bundle_bytes = config.bundle_bytes
    if not _share_memory(infos):
        bundle_bytes = min(bundle_bytes, _SOCKET_BUNDLE_BYTES)
    most = _frame_bytes(infos, max(config.slice_bytes, bundle_bytes))
    return msgspec.structs.replace(
        config,
        slice_bytes=min(most, config.slice_bytes),
        bundle_bytes=min(most, bundle_bytes),
    )


def _share_memory(nodes: Collection[NodeInfo]) -> bool:
    """Return whether all values pass through memory that workers share with servers.

    As far as one can tell from where servers listen; a worker that goes by sockets all the same
    takes larger bundles there, which cost memory and nothing else.
    """
    servers = [info for info in nodes if info.node.role is Role.SERVER]
    return len(_by_host(nodes)) == 1 and all(
        any(address.startswith(_SHARED) for address in info.addresses) for info in servers
    )


def _frame_bytes(nodes: Iterable[NodeInfo], most: int) -> int:
    by_host = _by_host(nodes)
    speeds = [_speed(each) for each in by_host.values()]
    stated = [speed for speed in speeds if speed]
    if len(by_host) < 2 or not stated:
        return most
    return frame_bytes(min(stated) * _BYTES_PER_MBIT, most)


def _by_host(nodes: Iterable[NodeInfo]) -> dict[str, list[NodeInfo]]:
    """Group workers and servers by machine."""
    by_host: dict[str, list[NodeInfo]] = {}
    for info in nodes:
        if info.node.role is not Role.SCHEDULER:
            by_host.setdefault(info.host, []).append(info)
    return by_host


def _sites(groups: Sequence[Sequence[NodeInfo]]) -> list[Site]:
    speeds = [_speed(group) for group in groups]
    stated = [speed for speed in speeds if speed]
    usual = fmean(stated) if stated else 1.0
    return [
        Site(
            speed or usual,
            sum(info.node.role is Role.WORKER for info in group),
            sum(info.node.role is Role.SERVER for info in group),
        )
        for speed, group in zip(speeds, groups, strict=True)
    ]


def _speed(group: Iterable[NodeInfo]) -> float:
    return max((each.link_mbps for each in group if math.isfinite(each.link_mbps)), default=0.0)
