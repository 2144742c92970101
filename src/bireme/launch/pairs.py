"""Which transport joins each pair of nodes, and what it has carried, in lines. Pure.

Called by :mod:`bireme.launch.diagnosis`. Every link of a job ends at the scheduler or at a server,
so that their reports cover all pairs.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ("describe_pairs",)

_MOST_LINES = 64
"""Of a larger job only the sums are shown."""

Report = Mapping[str, Any]


def describe_pairs(reports: Mapping[str, Report]) -> list[str]:
    """Return one line for each pair of nodes.

    Args:
        reports: What the scheduler and the servers say, by name.

    Example:
        >>> link = {"peer": "W[0]", "scheme": "shm+unix", "address": "shm+unix://@b",
        ...     "sent_bytes": 4_000_000, "received_bytes": 1500}
        >>> describe_pairs({"S[0]": {"links": [link]}})
        ['W[0] - S[0] by shm+unix, 1.5 kB to S[0], 4.0 MB to W[0]']
    """
    pairs: dict[frozenset[str], tuple[str, Report]] = {}
    for node, report in reports.items():
        for link in report.get("links", ()):
            pairs.setdefault(frozenset((node, link["peer"])), (node, link))
    if len(pairs) <= _MOST_LINES:
        return [_line(node, link) for node, link in pairs.values()]
    return _sums([link for _, link in pairs.values()])


def _line(node: str, link: Report) -> str:
    peer, address = link["peer"], link["address"]
    where = f" ({address.partition('://')[2]})" if link["scheme"] == "tcp" else ""
    return (
        f"{peer} - {node} by {link['scheme']}{where}, "
        f"{_amount(link['received_bytes'])} to {node}, {_amount(link['sent_bytes'])} to {peer}"
    )


def _sums(links: list[Report]) -> list[str]:
    counts = Counter(link["scheme"] for link in links)
    carried: Counter[str] = Counter()
    for link in links:
        carried[link["scheme"]] += link["sent_bytes"] + link["received_bytes"]
    return [
        f"{count} pairs by {scheme}, {_amount(carried[scheme])} in all"
        for scheme, count in sorted(counts.items())
    ]


def _amount(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
