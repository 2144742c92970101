"""Blocks of shared memory whose link is gone while the peer may still read them.

Using them again at once could change a payload under the peer's hands, when a link is lost and
opened again. They are free when the peer's process has ended. Called by `SocketTransport`.
"""

import os
from collections.abc import Iterator
from functools import partial

from bireme.transport.arena import Arena, Block
from bireme.transport.loop import Loop

__all__ = ("Orphans",)


class _Ended:
    """A descriptor that can be read once a process has ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


class Orphans:
    """Keeps such blocks for all links of a transport.

    Args:
        loop: Tells when a process has ended.
        arena: Where the blocks go back to.
    """

    def __init__(self, loop: Loop, arena: Arena) -> None:
        self._loop = loop
        self._arena = arena
        self._kept: dict[_Ended, list[Block]] = {}

    def keep(self, process: int, blocks: list[Block]) -> None:
        """Give the blocks back once ``process`` has ended; never, if it cannot be seen (0)."""
        self._loop.soon(partial(self._watch, process, blocks))

    def _watch(self, process: int, blocks: list[Block]) -> None:
        try:
            ended = _Ended(os.pidfd_open(process))
        except ProcessLookupError:
            self._arena.drop(blocks)
        except OSError:
            # It cannot be seen: its memory is lost to this arena, at most a window for each link.
            return
        else:
            self._kept[ended] = blocks
            self._loop.watch(ended, partial(self._reclaim, ended), writing=False)

    def _reclaim(self, ended: _Ended, _readable: bool, _writable: bool) -> None:
        blocks = self._kept.pop(ended, None)
        if blocks is not None:
            self._loop.forget(ended)
            os.close(ended.fileno())
            self._arena.drop(blocks)

    def descriptors(self) -> Iterator[int]:
        """Yield those that are open; takes no locks."""
        for ended in list(self._kept):
            yield ended.fileno()

    def close(self) -> None:
        """Free the descriptors."""
        for ended in self._kept:
            self._loop.forget(ended)
            os.close(ended.fileno())
        self._kept.clear()
