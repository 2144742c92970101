"""Finds out who is missing when a call's limit is over, and says so in the error.

Called by :mod:`bireme.core.worker`, which sends the questions and passes on the reports.
"""

from collections.abc import Iterable

from bireme.core.bunches import Bunch
from bireme.core.calls import (
    BarrierCall,
    Call,
    CommandCall,
    DeclareCall,
    InitCall,
    LeaveCall,
    PullCall,
    PushCall,
    ReadyCall,
    ResumeCall,
    RowsCall,
)
from bireme.core.opencalls import OpenCall
from bireme.errors import WaitTimeout

__all__ = ("INQUIRY_LIMIT_S", "Inquiry", "describe")

INQUIRY_LIMIT_S = 1.0
"""How long to wait for reports before the call fails without them."""

_NAMED = 4


class Inquiry:
    """The last questions about a call whose limit is over.

    Args:
        call: The call.
        slots: What it waits for; empty when that is no slot.
        limit_s: When it fails in any case.
    """

    def __init__(self, call: OpenCall, slots: set[tuple[int, int]], limit_s: float) -> None:
        self.call = call
        self.limit_s = limit_s
        self._slots = slots
        self._asked: dict[int, str] = {}
        self._findings: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether all reports have come."""
        return not self._asked

    def unanswered(self) -> list[int]:
        """Return the questions that got no answer."""
        return list(self._asked)

    def ask(self, request: int, node: str) -> None:
        """Note that ``node`` was asked by ``request``."""
        self._asked[request] = node

    def add(self, finding: str) -> None:
        """Note something that is known without asking."""
        self._findings.append(finding)

    def answered(self, request: int, report: dict[str, object]) -> bool:
        """Take a report; return whether it belongs to this inquiry."""
        node = self._asked.pop(request, None)
        if node is None:
            return False
        if isinstance(self.call.call, BarrierCall):
            self._findings += _at_barrier(report, self.call.call.name)
        elif self._slots:
            self._findings += _at_server(node, report, self._slots)
        elif report.get("missing"):
            missing = report["missing"]
            self._findings.append(f"the job waits for {_list(missing)}")
        return True

    def error(
        self, key_names: dict[int, int | str], places: dict[str, str] | None = None
    ) -> WaitTimeout:
        """Return the error that the call fails with.

        Args:
            key_names: What the user calls the keys.
            places: Where each node is, by its name; for the nodes that are missing.
        """
        call = self.call.call
        findings = list(dict.fromkeys(self._findings))
        findings += [f"{node} does not answer" for node in self._asked.values()]
        if not findings:
            findings = ["nobody is known to be missing; the answer may be under way"]
        text = "; ".join(findings)
        where = [f"{name} is {place}" for name, place in (places or {}).items() if name in text]
        if where:
            text += f" ({', '.join(where[:_NAMED])})"
        return WaitTimeout(
            f"{describe(call, key_names)} took longer than {call.timeout_s:g} s: {text}"
        )


def describe(call: Call, key_names: dict[int, int | str]) -> str:
    """Return what a call does, for messages.

    Example:
        >>> describe(PullCall(1, ((0, 0), (0, 1), (4, 0)), 1.0), {0: "weight"})
        "a pull of keys 'weight', 4"
    """
    if isinstance(call, BarrierCall):
        return f"barrier {call.name!r}"
    if isinstance(call, PullCall):
        slots = [*call.slots, *_in_bunches(call.bunches)]
        return f"a pull of {_keys([slot[0] for slot in slots], key_names)}"
    if isinstance(call, RowsCall):
        return f"a pull of rows of {_keys([call.key_id], key_names)}"
    if isinstance(call, PushCall):
        kind = "pushpull" if call.want_value else "push"
        bunched = _in_bunches([bunch for bunch, _ in call.bunches])
        pushed = [*[entry[:2] for entry in call.entries], *bunched]
        return f"a {kind} of {_keys([slot[0] for slot in pushed], key_names)}"
    if isinstance(call, InitCall):
        return f"the init of {_keys([entry.key_id for entry, _ in call.entries], key_names)}"
    if isinstance(call, CommandCall):
        return f"command {call.command}"
    return _OTHERS[type(call)] if type(call) in _OTHERS else "a question"


_OTHERS: dict[type, str] = {
    ReadyCall: "the start of the job",
    DeclareCall: "the declaration of keys",
    ResumeCall: "the question where to resume",
    LeaveCall: "leaving the job",
}


def _in_bunches(bunches: Iterable[Bunch]) -> list[tuple[int, int]]:
    return [slot for bunch in bunches for slot in bunch.slots]


def _keys(key_ids: list[int], key_names: dict[int, int | str]) -> str:
    names = [repr(key_names.get(key_id, key_id)) for key_id in dict.fromkeys(key_ids)]
    shown = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        shown += f" and {len(names) - _NAMED} more"
    return f"{'key' if len(names) == 1 else 'keys'} {shown}"


def _at_barrier(report: dict[str, object], name: str) -> list[str]:
    barriers = report.get("barriers")
    return [
        f"{_workers(barrier['missing'])} missing"
        for barrier in (barriers if isinstance(barriers, list) else [])
        if barrier.get("name") == name
    ]


def _at_server(node: str, report: dict[str, object], slots: set[tuple[int, int]]) -> list[str]:
    findings = []
    opened, bare = report.get("open"), report.get("not_initialised")
    missing: dict[str, None] = {}
    for each in opened if isinstance(opened, list) else []:
        if (each["key_id"], each["index"]) in slots and each["missing"]:
            missing[f"round {each['round']}: {_workers(each['missing'])} missing"] = None
    for text in list(missing)[:_NAMED]:
        findings.append(f"{node} waits in {text}")
    if any(tuple(each) in slots for each in (bare if isinstance(bare, list) else [])):
        findings.append(f"{node} has no first value; nobody has initialised the key")
    return findings


def _workers(ranks: object) -> str:
    return _list([f"W[{rank}]" for rank in ranks] if isinstance(ranks, list | tuple) else [])


def _list(names: object) -> str:
    found = [str(name) for name in names] if isinstance(names, list | tuple) else []
    shown = ", ".join(found[:16])
    return f"{shown} and {len(found) - 16} more" if len(found) > 16 else shown
