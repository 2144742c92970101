"""Bytes from a process become lines as a terminal would show them. Pure."""

__all__ = ("LineBuffer",)

_MOST_BYTES = 64 << 10


class LineBuffer:
    r"""Cuts a stream into lines.

    A carriage return starts the line over, as progress bars do; only what would be left to see
    is returned. A line of more than 64 KiB is returned in pieces.

    Example:
        >>> lines = LineBuffer()
        >>> lines.feed(b"one\n 10%\r100%\ntw"), lines.feed(b"o\n"), lines.finish()
        (['one', '100%'], ['two'], [])
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that ``data`` completes."""
        *complete, rest = (self._rest + data).split(b"\n")
        # What a carriage return has overwritten will never be seen. The last one is kept: it may
        # belong to a line end that is still under way.
        start = rest.rfind(b"\r", 0, -1) + 1
        self._rest = rest[start:]
        lines = [_shown(line) for line in complete]
        if len(self._rest) > _MOST_BYTES:
            lines.append(_shown(self._rest))
            self._rest = b""
        return lines

    def finish(self) -> list[str]:
        """Return what is left at the end of the stream."""
        rest, self._rest = self._rest, b""
        return [_shown(rest)] if rest else []


def _shown(line: bytes) -> str:
    return line.rstrip(b"\r").rsplit(b"\r", 1)[-1].decode("utf-8", "replace")
