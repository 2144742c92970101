"""How the speeds of a job's links are found out: who exchanges bytes with whom, and what it means.

Pure; :mod:`bireme.core.survey` asks. One machine at a time is the hub of its block: all others of
the block exchange bytes with it at once, so that together they fill its link although each of
theirs may be slower. Blocks work side by side.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple

__all__ = ("FAST_MBPS", "Turn", "agreed", "doubtful", "turns")

FAST_MBPS = 2400.0
"""From here on a link's speed changes nothing: slices have their full size, and processors are
what limits. What is measured above counts as this much."""

_BLOCK = 8
_MOST_TURNS = 10
_ALIKE = 0.85
"""Links whose speeds differ by less are equal: so much a short measurement is off."""


class Turn(NamedTuple):
    """A machine whose link is filled, and those that fill it."""

    hub: str
    spokes: tuple[str, ...]


def turns(
    serving: Sequence[str], others: Sequence[str], wanted: Collection[str]
) -> list[tuple[Turn, ...]]:
    """Return what happens one after the other, to measure the links of ``wanted``.

    Args:
        serving: Machines with servers, which anybody can exchange bytes with.
        others: Machines with workers only: they exchange bytes with servers, as in the job.
        wanted: Whose links are to be measured.

    Guarantees:
        No machine has two parts at once. There are 10 rounds at most, however many machines there
        are; machines without servers are the first that are left out.

    Example:
        >>> [[turn.hub for turn in each] for each in turns(["a", "b"], ["c"], {"a", "c"})]
        [['a'], ['c']]
        >>> turns(["a", "b"], ["c"], {"c"})
        [(Turn(hub='c', spokes=('a', 'b')),)]
    """
    num_hosts = len(serving) + len(others)
    num_blocks = max(1, min(-(-num_hosts // _BLOCK), len(serving)))
    able = frozenset(serving)
    found: list[list[Turn]] = []
    for number in range(num_blocks):
        block = [*serving[number::num_blocks], *others[number::num_blocks]]
        hubs = [host for host in block if host in wanted]
        for position, hub in enumerate(hubs[:_MOST_TURNS]):
            spokes = tuple(each for each in block if each != hub and (hub in able or each in able))
            if len(found) <= position:
                found.append([])
            if spokes:
                found[position].append(Turn(hub, spokes))
    return [tuple(each) for each in found if each]


def doubtful(measured: Mapping[str, float]) -> frozenset[str]:
    """Return whose links seem slower than the fastest, and should be measured again.

    A busy processor makes a link look slow and never fast, so that the best of several
    measurements counts.

    Example:
        >>> sorted(doubtful({"a": 100.0, "b": 95.0, "c": 50.0}))
        ['c']
    """
    best = min(FAST_MBPS, max(measured.values(), default=0.0))
    return frozenset(host for host, speed in measured.items() if speed < _ALIKE * best)


def agreed(measured: Mapping[str, float]) -> dict[str, float]:
    """Return the speeds that count: nearly equal ones are equal, and fast ones as fast as matters.

    Args:
        measured: In Mbit/s, by machine; 0 where nothing came of it.

    Returns:
        Those of the machines that are known.

    Example:
        >>> agreed({"a": 51.0, "b": 49.0, "c": 199.0, "d": 47.0})
        {'c': 199.0, 'a': 49.0, 'b': 49.0, 'd': 49.0}
        >>> agreed({"a": 9000.0, "b": 0.0})
        {'a': 2400.0}
    """
    known = {host: min(speed, FAST_MBPS) for host, speed in measured.items() if speed > 0}
    found: dict[str, float] = {}
    group: list[str] = []
    for host in sorted(known, key=lambda host: (-known[host], host)):
        if group and known[host] < _ALIKE * known[group[0]]:
            found |= dict.fromkeys(group, _middle(known, group))
            group = []
        group.append(host)
    return found | (dict.fromkeys(group, _middle(known, group)) if group else {})


def _middle(known: Mapping[str, float], group: Sequence[str]) -> float:
    return median(known[host] for host in group)
