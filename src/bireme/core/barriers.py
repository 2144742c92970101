"""Barriers: who has come, and who is still missing. Owned by the scheduler."""

from collections.abc import Iterator

import msgspec

from bireme.consistency.base import mask_of, ranks_in

__all__ = ("Barriers",)


class _Open(msgspec.Struct):
    """A barrier that somebody waits at."""

    since_s: float
    arrived: int = 0


class Barriers:
    """Counts senders, so that a repeated message changes nothing.

    The barriers of one name are numbered from 0. A replacement that begins at 0 again is told the
    newest number that is done, and goes on from there.

    Example:
        >>> barriers = Barriers()
        >>> barriers.arrive("epoch", 0, rank=1, now_s=0.0)
        >>> list(barriers.complete([0, 1])), barriers.done("epoch", 0)
        ([], None)
        >>> barriers.arrive("epoch", 0, rank=0, now_s=1.0)
        >>> list(barriers.complete([0, 1])), barriers.done("epoch", 0)
        ([('epoch', 0, [0, 1])], 0)
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _Open] = {}
        self._done: dict[str, int] = {}

    def done(self, name: str, number: int) -> int | None:
        """Return the newest number that is done, if that is ``number`` or a later one."""
        newest = self._done.get(name, -1)
        return newest if newest >= number else None

    def arrive(self, name: str, number: int, rank: int, now_s: float) -> None:
        """Note that ``rank`` has come to a barrier that is not done."""
        waiting = self._open.setdefault((name, number), _Open(now_s))
        waiting.arrived |= 1 << rank

    def complete(self, awaited: list[int]) -> Iterator[tuple[str, int, list[int]]]:
        """Yield name, number and ranks of each barrier where all of ``awaited`` have come.

        Args:
            awaited: The ranks that still take part, ascending.
        """
        wanted = mask_of(awaited)
        for (name, number), waiting in list(self._open.items()):
            if not wanted & ~waiting.arrived:
                del self._open[name, number]
                self._done[name] = max(number, self._done.get(name, -1))
                yield name, number, ranks_in(waiting.arrived)

    def report(self, awaited: list[int], now_s: float) -> list[dict[str, object]]:
        """Return the open barriers as plain data, with who is missing."""
        wanted = mask_of(awaited)
        return [
            {
                "name": name,
                "number": number,
                "missing": ranks_in(wanted & ~waiting.arrived),
                "waiting_s": round(now_s - waiting.since_s, 3),
            }
            for (name, number), waiting in self._open.items()
        ]
