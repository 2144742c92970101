"""How much each machine's servers should hold, so that no machine's link is the last to finish.

Pure; the scheduler asks once, when a job is complete. A worker pushes every byte of a value and
pulls it back, except what lives on its own machine; a server takes every byte that it holds from
every worker of another machine and gives it back.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from bireme.errors import ConfigError

__all__ = ("Site", "Spread", "frame_bytes", "spread")

FRAME_S = 0.0025
"""How long one frame may occupy a link: short beside a step, so that both directions fill at once
and urgent frames pass; long beside what a frame costs a processor, some 50 microseconds."""

_LEAST_FRAME_BYTES = 32 << 10
_HALVINGS = 200
_NOTHING = 1e-9


class Site(NamedTuple):
    """A machine: its link's speed each way, and who runs on it."""

    speed: float
    num_workers: int
    num_servers: int


class Spread(NamedTuple):
    """The best division of the bytes over the machines.

    Attributes:
        shares: Of each site, all its servers together; they sum to 1.
        duration: Of a push and a pull of one unit of bytes by every worker, in units of bytes over
            speed.
    """

    shares: tuple[float, ...]
    duration: float


def spread(sites: Sequence[Site]) -> Spread:
    """Return the shares with which the busiest link is done first.

    Args:
        sites: The machines; some worker and some server exist.

    Raises:
        ConfigError: There is no server, or a speed is not positive and finite.

    Guarantees:
        No division is faster by more than rounding. Sites of the same kind get the same share.

    Example:
        >>> both = Site(1.0, num_workers=1, num_servers=1)
        >>> found = spread([both] * 4 + [Site(1.0, num_workers=0, num_servers=1)] * 2)
        >>> [round(share * 20, 6) for share in found.shares], round(found.duration * 5, 6)
        ([2.0, 2.0, 2.0, 2.0, 6.0, 6.0], 6.0)

    Source:
        Jiang et al., "A unified architecture for accelerating distributed DNN training", OSDI 2020,
        section 4.1, for equal links; the linear program of the hivemind project for unequal ones,
        with servers added.
    """
    _check(sites)
    num_workers = sum(site.num_workers for site in sites)
    low, high = 0.0, 1.0 / max(site.speed for site in sites)
    while not _feasible(sites, num_workers, high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _feasible(sites, num_workers, middle):
            high = middle
        else:
            low = middle
    return Spread(_shares(sites, num_workers, high), high)


def frame_bytes(bytes_per_s: float, most: int) -> int:
    """Return the size of the frames in which values travel over a link, a power of two.

    Args:
        bytes_per_s: Speed of the job's slowest link, > 0.
        most: What larger sizes are cut to; returned as it is when a fast link would allow more.

    Example:
        >>> frame_bytes(50e6 / 8, 1 << 20), frame_bytes(200e6 / 8, 1 << 20), frame_bytes(3e9, 1000)
        (32768, 65536, 1000)
    """
    wanted = max(_LEAST_FRAME_BYTES, bytes_per_s * FRAME_S)
    return min(most, 1 << round(math.log2(wanted)))


def _check(sites: Sequence[Site]) -> None:
    for site in sites:
        if not (math.isfinite(site.speed) and site.speed > 0):
            raise ConfigError(f"the speed of a link must be > 0, got {site.speed}")
    if not any(site.num_servers for site in sites):
        raise ConfigError("a job needs at least one server to place keys on")


def _bounds(site: Site, num_workers: int, duration: float) -> tuple[float, float]:
    """Return the least and the greatest share with which a link is done within ``duration``.

    With a share f, ``w`` workers of the site send ``w * (1 - f)`` and its servers answer the
    ``n - w`` others with ``f`` each; as much comes in. None fits when the first is the greater.
    """
    room = duration * site.speed - site.num_workers
    slope = num_workers - 2 * site.num_workers
    if not site.num_servers or not slope:
        most = 1.0 if site.num_servers else 0.0
        return (0.0, most) if room >= 0 else (1.0, 0.0)
    if slope > 0:
        return 0.0, min(1.0, room / slope)
    return max(0.0, room / slope), 1.0


def _feasible(sites: Sequence[Site], num_workers: int, duration: float) -> bool:
    bounds = [_bounds(site, num_workers, duration) for site in sites]
    if any(least > most for least, most in bounds):
        return False
    return math.fsum(each[0] for each in bounds) <= 1 <= math.fsum(each[1] for each in bounds)


def _shares(sites: Sequence[Site], num_workers: int, duration: float) -> tuple[float, ...]:
    bounds = [_bounds(site, num_workers, duration) for site in sites]
    least = math.fsum(each[0] for each in bounds)
    room = math.fsum(each[1] for each in bounds) - least
    # What is left over is dealt in proportion to the room that each site has.
    part = (1 - least) / room if room > 0 else 0.0
    shares = [low + part * (high - low) for low, high in bounds]
    shares = [share if share > _NOTHING else 0.0 for share in shares]
    total = math.fsum(shares)
    return tuple(share / total for share in shares)
