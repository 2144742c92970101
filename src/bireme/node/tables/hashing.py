"""Compiled loops over row ids: a hash index, merging duplicates, dealing ids to servers.

Called by :mod:`bireme.node.tables.index`. Serial code that numba compiles on first use; it
releases the interpreter's lock. An index is a power of two of int32 cells, each -1 or the
position of a row, probed linearly from the low bits of the mixed id; the high bits choose the
server, so that the two are independent.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

__all__ = ("deal", "fill_cells", "find", "find_or_add", "homes")

F = TypeVar("F", bound=Callable[..., Any])


def _jit(function: F) -> F:
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile each time.
        return cast("F", numba.njit(nogil=True)(function))


@_jit
def _mixed(row: Any) -> Any:
    bits = np.uint64(row) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@_jit
def _home(row: Any, num_servers: Any) -> Any:
    return np.int64(((_mixed(row) >> np.uint64(32)) * np.uint64(num_servers)) >> np.uint64(32))


@_jit
def homes(rows: Any, num_servers: Any, out: Any) -> None:
    """Write the server of each row to ``out``; as :func:`bireme.placement.rows.home`."""
    for number in range(rows.shape[0]):
        out[number] = _home(rows[number], num_servers)


@_jit
def find(rows: Any, ids: Any, cells: Any, out: Any) -> Any:
    """Write the position of each row, or -1, to ``out``; return how many were not found."""
    mask = np.uint64(cells.shape[0] - 1)
    missing = 0
    for number in range(rows.shape[0]):
        row = rows[number]
        at = _mixed(row) & mask
        position = cells[at]
        while position >= 0 and ids[position] != row:
            at = (at + np.uint64(1)) & mask
            position = cells[at]
        out[number] = position
        missing += position < 0
    return missing


@_jit
def find_or_add(rows: Any, ids: Any, count: Any, cells: Any, out: Any) -> Any:
    """Write the position of each row to ``out``, new ones behind ``count``; return their count.

    ``ids`` has room for all that may be new, and ``cells`` stays half empty.
    """
    mask = np.uint64(cells.shape[0] - 1)
    for number in range(rows.shape[0]):
        row = rows[number]
        at = _mixed(row) & mask
        position = cells[at]
        while position >= 0 and ids[position] != row:
            at = (at + np.uint64(1)) & mask
            position = cells[at]
        if position < 0:
            position = count
            cells[at] = count
            ids[count] = row
            count += 1
        out[number] = position
    return count


@_jit
def fill_cells(ids: Any, count: Any, cells: Any) -> None:
    """Make an index of the first ``count`` ids, which differ from each other, afresh."""
    mask = np.uint64(cells.shape[0] - 1)
    cells[:] = -1
    for position in range(count):
        at = _mixed(ids[position]) & mask
        while cells[at] >= 0:
            at = (at + np.uint64(1)) & mask
        cells[at] = position


@_jit
def deal(rows: Any, count: Any, num_servers: Any, dealt: Any, places: Any, ends: Any) -> None:
    """Sort the first ``count`` rows by server.

    Args:
        rows: Ids that differ from each other.
        count: How many.
        num_servers: How many servers.
        dealt: Gets the ids, those of server 0 first, otherwise in order.
        places: Gets, for each row, its position in ``dealt``.
        ends: ``num_servers`` zeros; gets where the rows of each server end.
    """
    for number in range(count):
        server = _home(rows[number], num_servers)
        places[number] = server
        ends[server] += 1
    total = 0
    for server in range(num_servers):
        size = ends[server]
        ends[server] = total
        total += size
    for number in range(count):
        server = places[number]
        place = ends[server]
        ends[server] = place + 1
        dealt[place] = rows[number]
        places[number] = place
