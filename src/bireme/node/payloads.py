"""What follows a head: the memory of a message's payload laid out, and kept until it has left.

Called by :mod:`bireme.node.runtime` for every payload that it sends.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from bireme.node.memory import Memory
from bireme.node.parcels import Parcel
from bireme.node.sheets import joined

__all__ = ("kept", "laid_out", "release_all")


def laid_out(pieces: Sequence[Memory | Parcel]) -> tuple[list[memoryview], int]:
    """Return what follows a head, in pieces that are not empty, and its size.

    Args:
        pieces: The payload, in order: pieces of memory, or one parcel.

    Example:
        >>> from bireme.node.memory import Held
        >>> views, size_bytes = laid_out([Held(memoryview(b"ab")), Held(memoryview(b""))])
        >>> [bytes(view) for view in views], size_bytes
        ([b'ab'], 2)
    """
    if len(pieces) == 1:
        piece = pieces[0]
        if type(piece) is Parcel:
            return piece.views, piece.size_bytes
        view = piece.view  # type: ignore[union-attr]
        return ([view], len(view)) if view else ([], 0)
    views = [view for view in joined(cast("Sequence[Memory]", pieces)) if view.nbytes]
    return views, sum([view.nbytes for view in views])


def kept(pieces: Sequence[Memory | Parcel]) -> Callable[[], None]:
    """Keep memory for a frame; return what lets go of it."""
    for piece in pieces:
        piece.retain()
    return pieces[0].release if len(pieces) == 1 else partial(release_all, pieces)


def release_all(pieces: Sequence[Memory | Parcel]) -> None:
    """Let go of all pieces."""
    for piece in pieces:
        piece.release()
