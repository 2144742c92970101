"""What each process has printed last, for the report of its failure. Pure."""

from collections import deque

from bireme.launch.exits import abort_of
from bireme.types.nodes import NodeId

__all__ = ("TAIL_LINES", "Tails")

TAIL_LINES = 20
"""Last lines that are kept."""


class Tails:
    """The last lines of each process, of both streams.

    Example:
        >>> from bireme.types import worker
        >>> tails = Tails()
        >>> tails.add(worker(0), ["epoch 1"], is_error=False)
        >>> tails.add(worker(0), ["KeyError: 'x'"], is_error=True)
        >>> tails.of(worker(0))
        ["KeyError: 'x'"]
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[NodeId, bool], deque[str]] = {}

    def add(self, node: NodeId, lines: list[str], *, is_error: bool) -> None:
        """Take lines that a process has printed."""
        self._lines.setdefault((node, is_error), deque(maxlen=TAIL_LINES)).extend(lines)

    def of(self, node: NodeId) -> list[str]:
        """Return the last lines of standard error, of standard output where there are none."""
        return list(self._lines.get((node, True)) or self._lines.get((node, False)) or ())

    def report(self, node: NodeId) -> tuple[str, str]:
        """Return who else is to blame, and what it printed last, as ends of a sentence.

        The first is empty unless the process says itself that it ended because of another one.
        """
        lines = self.of(node)
        cause = abort_of(lines, str(node))
        blame = "" if cause is None else f", because of {cause}"
        if not lines:
            return blame, "; it had printed nothing"
        return blame, "; its last lines:\n" + "\n".join(f"    {line}" for line in lines)
