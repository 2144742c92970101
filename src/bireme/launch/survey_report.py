"""Whether a set of hosts can run a job, as a table, and what to do where they cannot. Pure.

Called by ``bireme doctor --hosts`` with what ``launch.survey`` has found.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ("Finding", "Reached", "Reference", "is_well", "routes", "survey_table")

_SKEW_S: Final = 1.0
_NAMELESS = ("not known", "name resolution", "No address associated", "nodename nor servname")
_OTHER = "is another host"
_COLUMNS = ("reachable", "python", "packages", "folder", "clock", "port", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What every host has to agree with: the machine that starts the job."""

    python: str
    packages: Mapping[str, str]
    """Versions by name; nothing for one that is not installed."""
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How one host got to another one."""

    host: str
    """Where to, as the user calls it."""
    source: str = ""
    """The address that it left from, and its interface."""
    target: str = ""
    """The address that it arrived at."""
    error: str = ""
    """Why it did not by that name; with a ``target``, another of the host's addresses worked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one host said, or why it said nothing."""

    host: str
    trouble: str = ""
    """Why it cannot be examined, and what to do about that; the rest is empty then."""
    python: str = ""
    executable: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    has_folder: bool = True
    skew_s: float = 0.0
    """Its clock, before ours."""
    doubt_s: float = 0.0
    """How far off ``skew_s`` may be: half of the time that the question took."""
    port_error: str = ""
    reached: tuple[Reached, ...] = ()


def survey_table(
    reference: Reference,
    findings: Sequence[Finding],
    *,
    tick: str = "\u2713",
    cross: str = "\u2717",
) -> list[str]:
    """Return the lines of the table, and for each cross what to do.

    Args:
        reference: What to agree with.
        findings: One for each host, in the user's order.
        tick: Marks what is well.
        cross: Marks what is not.

    Example:
        >>> mine = Reference(python="3.11.7", packages={}, folder="/work")
        >>> hosts = [Finding(host="a", trouble="nobody listens there")]
        >>> for line in survey_table(mine, hosts, tick="ok", cross="NO"):
        ...     print(line)
        host  reachable  python  packages  folder  clock  port  network
        a     NO
        what to do:
          a: nobody listens there
    """
    rows: list[tuple[str, ...]] = [("host", *_COLUMNS)]
    todo: list[str] = []
    for finding in findings:
        cells = []
        for column in _COLUMNS if not finding.trouble else _COLUMNS[:1]:
            good, complaints = _CHECKS[column](reference, finding)
            cells.append(f"{tick} {good}".strip() if not complaints else cross)
            todo += [f"  {finding.host}: {complaint}" for complaint in complaints]
        rows.append((finding.host, *cells))
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(_COLUMNS) + 1)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
    return lines + (["what to do:", *todo] if todo else [])


def routes(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each pair of hosts that was tried: which interface reaches which address.

    Example:
        >>> way = Reached(host="b", source="10.0.0.1 (eth0)", target="10.0.0.2")
        >>> routes([Finding(host="a", reached=(way,))])
        ['a -> b: from 10.0.0.1 (eth0) to 10.0.0.2']
    """
    return [
        f"{finding.host} -> {way.host}: from {way.source} to {way.target}"
        for finding in findings
        for way in finding.reached
        if not way.error
    ]


def is_well(reference: Reference, findings: Sequence[Finding]) -> bool:
    """Return whether nothing speaks against a job on these hosts."""
    return not any(
        complaints
        for finding in findings
        for check in _CHECKS.values()
        for complaints in [check(reference, finding)[1]]
    )


_Verdict = tuple[str, list[str]]
"""What stands behind the tick, and what to do about each defect."""


def _reachable(_reference: Reference, finding: Finding) -> _Verdict:
    if not finding.trouble:
        return "", []
    return "", [finding.trouble]


def _python(reference: Reference, finding: Finding) -> _Verdict:
    mine, theirs = (text.split(".")[:2] for text in (reference.python, finding.python))
    if mine == theirs or finding.trouble:
        return finding.python, []
    return "", [
        f"{finding.executable} is Python {finding.python}, here it is {reference.python}; install "
        "the same one, or start the job from an environment that all hosts share"
    ]


def _packages(reference: Reference, finding: Finding) -> _Verdict:
    if finding.trouble:
        return "", []
    return "", list(_differences(reference, finding))


def _differences(reference: Reference, finding: Finding) -> Iterator[str]:
    for name, mine in reference.packages.items():
        theirs = finding.packages.get(name, "")
        if mine and theirs != mine:
            has = f"has {name} {theirs}" if theirs else f"has no {name}"
            yield f"{has}, here it is {mine}; run there: {_pip(finding, name, mine)}"


def _pip(finding: Finding, name: str, version: str) -> str:
    return f"{finding.executable} -m pip install {name}=={version.partition('+')[0]}"


def _folder(reference: Reference, finding: Finding) -> _Verdict:
    if finding.has_folder or finding.trouble:
        return "", []
    return "", [f"has no folder {reference.folder}; copy it there, or share it between the hosts"]


def _clock(_reference: Reference, finding: Finding) -> _Verdict:
    # What the question's own time could explain is no difference.
    sure_s = abs(finding.skew_s) - finding.doubt_s
    if sure_s <= _SKEW_S:
        return "" if finding.trouble else f"{finding.skew_s:+.1f} s", []
    way = "ahead" if finding.skew_s > 0 else "behind"
    return "", [
        f"its clock is {abs(finding.skew_s):.1f} s {way}; set it, as chrony or ntpd do: times in "
        "logs and timelines would not fit together"
    ]


def _port(_reference: Reference, finding: Finding) -> _Verdict:
    if not finding.port_error:
        return "", []
    return "", [f"cannot listen on a port: {finding.port_error}; look at its limits and addresses"]


def _network(_reference: Reference, finding: Finding) -> _Verdict:
    defects = [_advice(way) for way in finding.reached if way.error]
    return ", ".join(dict.fromkeys(way.source for way in finding.reached)), defects


def _advice(way: Reached) -> str:
    """Say what is wrong between two hosts, and who can mend it."""
    trouble = f"cannot reach {way.host} ({way.error})"
    if way.target:
        return (
            f"{trouble}, but {way.target} works; correct what the name stands for there, or call "
            "that host by its address"
        )
    if any(word in way.error for word in _NAMELESS):
        return f"{trouble}; add the name to /etc/hosts or to the name server, or use its address"
    if _OTHER in way.error:
        return f"{trouble}; correct what the name stands for there, in /etc/hosts or elsewhere"
    return f"{trouble}; let all ports above 1024 through the firewall between the two"


_CHECKS = {
    "reachable": _reachable,
    "python": _python,
    "packages": _packages,
    "folder": _folder,
    "clock": _clock,
    "port": _port,
    "network": _network,
}
