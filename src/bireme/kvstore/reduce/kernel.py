"""Sums and copies dense CPU tensors at the speed of memory: the work of the host reducer.

Serial code compiled by numba on first use, once for each element type. It releases the
interpreter's lock and shares out its work through a counter, so any number of threads may run
one plan together. A plan carries many jobs as one table of addresses, so a hundred small keys
cost like one. What happens to a block of memory is in :mod:`bireme.kvstore.reduce.lines`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types

from bireme.kvstore.reduce.lines import ITEM_BYTES, LINE_BYTES, add_blocks, code_for

__all__ = ("Plan",)

F = TypeVar("F", bound=Callable[..., Any])

# What a thread takes at a time: long enough for the processor's prefetcher, short enough to
# share out evenly.
_PIECE_BYTES = 64 * 1024
# Fits the registers of any vector unit, also when half types are widened.
_BLOCK_BYTES = 128


class Plan:
    """A batch of sums over raw memory, all of one element type.

    The caller keeps the memory alive until every :meth:`run` has returned.

    Args:
        kind: Name of the element type, as torch calls it.
        addresses: For each job its values' addresses, then its targets'.
        jobs: For each job its numbers of values, of targets, and of elements.
        stream: Write past the cache where targets are aligned to its lines.

    Example:
        >>> a, b, out = np.ones(3), np.ones(3), np.zeros(3)
        >>> Plan("float64", [each.ctypes.data for each in (a, b, out)], [(2, 1, 3)]).run()
        >>> out
        array([2., 2., 2.])
    """

    __slots__ = ("_addresses", "_cursor", "_jobs", "_run", "_stream")

    def __init__(
        self,
        kind: str,
        addresses: list[int],
        jobs: list[tuple[int, int, int]],
        stream: bool = False,
    ) -> None:
        self._run = _compiled(kind)
        self._addresses = np.array(addresses, np.int64)
        self._jobs = np.array(jobs, np.int64).reshape(-1, 3)
        self._cursor = np.zeros(1, np.int64)
        self._stream = stream

    def run(self) -> None:
        """Work until nothing is left to take; call it from as many threads as shall help."""
        self._run(self._addresses, self._jobs, self._cursor, self._stream)


def _jit(function: F) -> F:
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile each time.
        return cast("F", numba.njit(nogil=True)(function))


def _intrinsic(function: Callable[..., Any]) -> Any:
    # Callers leave out the context, which no annotation can say.
    return extending.intrinsic(function)


@_intrinsic
def _take(context: Any, address: Any) -> Any:
    """Add one to the int64 at ``address`` atomically; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.int64), generate


@_intrinsic
def _fence(context: Any) -> Any:
    """Order streamed writes before whatever tells another thread that they are done."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@_jit
def _may_stream(targets: Any) -> Any:
    for address in targets:
        if address % LINE_BYTES:
            return False
    return True


@cache
def _compiled(kind: str) -> Callable[[Any, Any, Any, bool], None]:
    item, code = ITEM_BYTES[kind], code_for(kind)

    # Numba sees `item` and `code` as constants, so each type has code of its own.
    def run(addresses: Any, jobs: Any, cursor: Any, stream: Any) -> None:
        job, first, at, count = -1, 0, 0, 0
        while True:
            number = _take(cursor.ctypes.data)
            while number >= first + count:
                if job >= 0:
                    at += jobs[job, 0] + jobs[job, 1]
                job += 1
                if job == jobs.shape[0]:
                    _fence()
                    return
                first += count
                count = (jobs[job, 2] * item + _PIECE_BYTES - 1) // _PIECE_BYTES
            values, targets = jobs[job, 0], jobs[job, 1]
            low = (number - first) * _PIECE_BYTES
            high = min(low + _PIECE_BYTES, jobs[job, 2] * item)
            past = stream and _may_stream(addresses[at + values : at + values + targets])
            table = addresses.ctypes.data + 8 * at
            sizes = jobs.ctypes.data + 8 * 3 * job
            blocks = (high - low) // _BLOCK_BYTES
            add_blocks(code, _BLOCK_BYTES, table, sizes, low, blocks, past)
            low += blocks * _BLOCK_BYTES
            lines = (high - low) // LINE_BYTES
            add_blocks(code, LINE_BYTES, table, sizes, low, lines, past)
            low += lines * LINE_BYTES
            add_blocks(code, item, table, sizes, low, (high - low) // item, False)

    return _jit(run)
