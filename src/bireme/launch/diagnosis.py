"""From what a job's nodes say to lines for people: who is there, who waits for whom. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bireme.launch.pairs import describe_pairs

__all__ = ("describe_job", "is_well")

_WORTH_SAYING_S = 1.0
_LONG_SILENCE_S = 3.0

Report = Mapping[str, Any]


def describe_job(
    scheduler: Report, servers: Mapping[str, Report], silent: Mapping[str, str]
) -> list[str]:
    """Return the lines of ``bireme doctor`` about one job.

    Args:
        scheduler: The scheduler's report.
        servers: The servers' reports by name.
        silent: Servers that did not answer, and why.

    Example:
        >>> report = {"phase": "forming", "view": 0, "nodes": [], "missing": ["W[0]"], "lost": [],
        ...     "left": [], "barriers": [], "num_keys": 0}
        >>> for line in describe_job(report, {}, {}):
        ...     print(line)
        forming, view 0, 0 keys
        not there: W[0]
    """
    lines = [f"{scheduler['phase']}, view {scheduler['view']}, {_count(scheduler['num_keys'])}"]
    lines += [_node(node, servers, silent) for node in scheduler["nodes"]]
    if scheduler["missing"]:
        lines.append(f"not there: {', '.join(scheduler['missing'])}")
    lines += [f"dead: {text}" for text in scheduler["lost"]]
    if scheduler["left"]:
        lines.append(f"done: {', '.join(scheduler['left'])}")
    lines += describe_pairs({scheduler.get("node", "H"): scheduler, **servers})
    lines += _speeds(scheduler)
    lines += _tables(scheduler, servers)
    waits = list(_waits(scheduler, servers))
    lines += waits
    if not waits and scheduler["phase"] == "running":
        lines.append("nobody waits for anybody")
    return lines


def is_well(scheduler: Report, silent: Mapping[str, str]) -> bool:
    """Return whether every node is there and answers; a job that forms may lack some."""
    late = any(
        node["silent_s"] > _LONG_SILENCE_S or not node["linked"] for node in scheduler["nodes"]
    )
    missing = scheduler["missing"] and scheduler["phase"] == "running"
    return not (silent or late or missing or scheduler["lost"])


def _node(node: Report, servers: Mapping[str, Report], silent: Mapping[str, str]) -> str:
    name = node["node"]
    text = f"{name:<6} process {node['pid']} on {node['host']}, heard {node['silent_s']:.1f} s ago"
    if not node["linked"]:
        text += ", its link is down"
    if name in servers:
        text += f", {servers[name]['num_slots']} slices"
    if name in silent:
        text += f", does not answer: {silent[name]}"
    return text


def _speeds(scheduler: Report) -> list[str]:
    """Return a line for each machine's link, where there are several: what shares follow."""
    found = scheduler.get("speeds", ())
    if len(found) < 2:
        return []
    return [
        f"link of {host}: {f'{mbps:.0f} Mbit/s, {source}' if mbps else 'speed unknown'}; "
        f"servers there hold {share:.0%} of all bytes"
        for host, mbps, source, share in found
    ]


def _tables(scheduler: Report, servers: Mapping[str, Report]) -> list[str]:
    """Return a line for each table: its rows, and how they are spread."""
    names = dict(scheduler.get("keys", ()))
    parts: dict[int, list[Report]] = {}
    for report in servers.values():
        for table in report.get("tables", ()):
            parts.setdefault(table["key_id"], []).append(table)
    lines = []
    for key_id, found in parts.items():
        rows = [table["rows"] for table in found]
        size_mb = sum(table["bytes"] for table in found) / 1e6
        gone = sum(table["evictions"] for table in found)
        lines.append(
            f"table {names.get(key_id, key_id)!r}: {sum(rows)} rows in {size_mb:.1f} MB, "
            f"{min(rows)} to {max(rows)} on a server, {gone} evicted"
        )
    return lines


def _waits(scheduler: Report, servers: Mapping[str, Report]) -> Iterator[str]:
    for barrier in scheduler["barriers"]:
        yield (
            f"barrier {barrier['name']!r} waits for {_workers(barrier['missing'])} "
            f"for {barrier['waiting_s']:.1f} s"
        )
    names = dict(scheduler.get("keys", ()))
    for server, report in servers.items():
        for opened in _oldest_of_each_key(report["open"]):
            key = names.get(opened["key_id"], opened["key_id"])
            yield (
                f"{server}: round {opened['round']} of key {key!r} waits for "
                f"{_workers(opened['missing'])} for {opened['waiting_s']:.1f} s"
            )
        bare = {names.get(key_id, key_id) for key_id, _ in report["not_initialised"]}
        if bare:
            yield f"{server}: nobody has initialised {', '.join(map(repr, sorted(bare, key=str)))}"


def _oldest_of_each_key(opened: Sequence[Report]) -> list[Report]:
    """One line for a key, however many slices it has; moments of waiting are no news."""
    found: dict[int, Report] = {}
    for each in opened:
        if each["missing"] and each["waiting_s"] >= _WORTH_SAYING_S:
            known = found.setdefault(each["key_id"], each)
            if each["waiting_s"] > known["waiting_s"]:
                found[each["key_id"]] = each
    return list(found.values())


def _workers(ranks: Sequence[int]) -> str:
    shown = ", ".join(f"W[{rank}]" for rank in ranks[:16])
    return f"{shown} and {len(ranks) - 16} more" if len(ranks) > 16 else shown


def _count(keys: int) -> str:
    return "1 key" if keys == 1 else f"{keys} keys"
