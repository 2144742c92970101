"""What the user sees: each process's lines behind its name, and the launcher's own words."""

import os
import time
from collections.abc import Mapping
from typing import Protocol, TextIO

from bireme.types.nodes import NodeId, Role

__all__ = ("Console", "Printer", "wants_colour")

_PALETTE = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_RESET = "\x1b[0m"


class Printer(Protocol):
    """Where a launcher prints to."""

    def line(self, node: NodeId, text: str, *, is_error: bool = False) -> None:
        """Print one line of a process's output."""

    def say(self, text: str) -> None:
        """Print words of the launcher's own."""

    def pass_on(self, text: str) -> None:
        """Print a line of another launcher's output as it is."""


class Console:
    """Prints to two streams, lines of processes to the one that they wrote to.

    Args:
        out: For what processes write to standard output.
        err: For what they write to standard error, and for the launcher's own words.
        width: Characters of the longest node name.
        colour: Whether names are coloured.
        timestamps: Whether each line of a process begins with the time.

    Example:
        >>> import sys
        >>> from bireme.types import worker
        >>> Console(sys.stdout, sys.stdout, width=5, colour=False).line(worker(0), "hello")
        W[0]  | hello
    """

    def __init__(
        self, out: TextIO, err: TextIO, *, width: int, colour: bool, timestamps: bool = False
    ) -> None:
        self._out = out
        self._err = err
        self._width = width
        self._colour = colour
        self._timestamps = timestamps

    def line(self, node: NodeId, text: str, *, is_error: bool = False) -> None:
        """Print one line of a process's output."""
        name = f"{node!s:<{self._width}} |"
        if self._timestamps:
            name = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {name}"
        if self._colour:
            name = f"\x1b[{_colour_of(node)}m{name}{_RESET}"
        _write(self._err if is_error else self._out, f"{name} {text}" if text else name)

    def say(self, text: str) -> None:
        """Print words of the launcher's own."""
        _write(self._err, f"bireme: {text}")

    def pass_on(self, text: str) -> None:
        """Print a line of another launcher's output as it is."""
        _write(self._out, text)


def wants_colour(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Return whether colours are right for ``stream``: a terminal, and nobody said no.

    Source:
        https://no-color.org
    """
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def _colour_of(node: NodeId) -> int:
    if node.role is Role.SCHEDULER:
        return 90
    # Servers come from the other end, so that S[0] and W[0] differ.
    return _PALETTE[node.rank % len(_PALETTE) if node.role is Role.WORKER else -1 - node.rank % 5]


def _write(stream: TextIO, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        stream.flush()
    except BrokenPipeError:
        _mute(stream)
        raise


def _mute(stream: TextIO) -> None:
    """Lead to nowhere what nobody reads.

    Python writes out what is left when it ends, and where that fails the exit code becomes 120.

    Source:
        https://docs.python.org/3/library/signal.html#note-on-sigpipe
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
