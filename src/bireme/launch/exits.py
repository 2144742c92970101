"""How a process ended: in words, and as an exit code of the launcher's own. Pure."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ("Exit", "abort_of", "names_an_abort", "silent_in")

_ABORTS = ("errors.JobAborted", "errors.NodeLost", "errors.PeerLost")
"""As Python names the exceptions when nobody catches them."""

_OWN = (": the scheduler refuses this ", ": {node} on ")
"""How an abort goes on that is the process's own fault."""

_LOST_RANK = re.compile(
    r"(?:Error|RankLost|EngineClosed)\b.*?"
    r"\b(rank (\d+) (?:has shut down|is lost|left the group|ended)\b.*)"
)
"""How collectives end because of another rank; their other errors come to all ranks alike."""

_SILENT = re.compile(r"(?:^|\s)([SW]\[\d+\]) on \S+ is dead: silent for ")


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process.

    Args:
        status: What ``subprocess`` calls the return code: negative for a signal.
        text: What happened, where it was neither an exit nor a signal.

    Example:
        >>> str(Exit(-9)), Exit(-9).code
        ('was killed by SIGKILL (exit code 137)', 137)
        >>> str(Exit(3)), Exit(0).failed
        ('ended with exit code 3', False)
    """

    status: int
    text: str = ""

    @property
    def failed(self) -> bool:
        """Whether the process did not end with exit code 0."""
        return self.status != 0

    @property
    def is_unknown(self) -> bool:
        """Whether nobody saw how it ended, as when its host was lost."""
        return bool(self.text)

    @property
    def code(self) -> int:
        """The exit code as a shell shows it: 128 and the signal's number for a signal."""
        return self.status if self.status >= 0 else 128 - self.status

    def __str__(self) -> str:
        if self.text:
            return self.text
        if self.status >= 0:
            return f"ended with exit code {self.status}"
        return f"was killed by {_signal_name(-self.status)} (exit code {self.code})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def names_an_abort(lines: Iterable[str], node: str = "") -> bool:
    """Return whether a process's last lines say that it ended because another one had failed.

    Args:
        lines: What it printed last.
        node: Its own name: an abort that names itself is its own failure.

    Example:
        >>> names_an_abort(["bireme.errors.JobAborted: W[1] on leda: killed"], "W[0]")
        True
        >>> names_an_abort(["bireme.errors.JobAborted: W[1] on leda: killed"], "W[1]")
        False
    """
    return abort_of(lines, node) is not None


def abort_of(lines: Iterable[str], node: str = "") -> str | None:
    """Return what failed elsewhere, in the words of the process that ended because of it.

    Args:
        lines: What it printed last.
        node: Its own name.

    Example:
        >>> abort_of(["bireme.errors.JobAborted: W[1] on leda: killed"], "W[0]")
        'W[1] on leda: killed'
    """
    own = [text.format(node=node) for text in _OWN]
    for line in lines:
        if any(word in line for word in _ABORTS) and not any(text in line for text in own):
            return line.partition(": ")[2]
        lost = _LOST_RANK.search(line)
        if lost is not None and f"W[{lost[2]}]" != node:
            return lost[1]
    return None


def silent_in(lines: Iterable[str]) -> list[str]:
    """Return the nodes that a scheduler gives up, as it says, though nobody saw them end.

    Args:
        lines: What it printed.

    Example:
        >>> silent_in(["H W[1] on leda is dead: silent for 30.2 s", "H S[0] on leda has joined"])
        ['W[1]']
    """
    return [found[1] for line in lines if (found := _SILENT.search(line)) is not None]
