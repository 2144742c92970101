"""Sums and copies dense CPU tensors at the speed of memory: the inner loops of the host reducer.

Serial kernels compiled by numba on first use. They release the interpreter's lock and share out
their work through a counter, so any number of threads may run one plan together.

* A plan carries many jobs as one table of addresses, so a hundred small keys cost like one.
* A span is summed in a buffer of the first-level cache and then written to every target, so
  each input is read once and each target written once.
* Targets that do not fit the cache are written past it ("streamed"), which saves reading them
  first: 1.2 to 1.6 times faster for 40 MB.
* Loops index arrays that begin at zero; an index with an offset would not be vectorised.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types

__all__ = ("Plan",)

F = TypeVar("F", bound=Callable[..., Any])

# What a thread takes at a time: long enough for the processor's prefetcher, short enough to
# share out evenly.
_ITEM_BYTES = 64 * 1024
_SPAN_BYTES = 16 * 1024
_LINE_BYTES = 64


class Plan:
    """A batch of sums over raw memory, all of one element type.

    The caller keeps the memory alive until every :meth:`run` has returned.

    Args:
        dtype: Element type; one of numpy's, so no half types.
        addresses: For each job its values' addresses, then its targets'.
        jobs: For each job its numbers of values, of targets, and of elements.
        stream: Write past the cache.

    Example:
        >>> a, b, out = np.ones(3), np.ones(3), np.zeros(3)
        >>> Plan(a.dtype, [each.ctypes.data for each in (a, b, out)], [(2, 1, 3)]).run()
        >>> out
        array([2., 2., 2.])
    """

    __slots__ = ("_addresses", "_cursor", "_jobs", "_like", "_stream")

    def __init__(
        self,
        dtype: np.dtype[Any],
        addresses: list[int],
        jobs: list[tuple[int, int, int]],
        stream: bool = False,
    ) -> None:
        self._addresses = np.array(addresses, np.int64)
        self._jobs = np.array(jobs, np.int64).reshape(-1, 3)
        self._cursor = np.zeros(1, np.int64)
        self._like = np.empty(0, dtype)
        self._stream = stream

    def run(self) -> None:
        """Work until nothing is left to take; call it from as many threads as shall help."""
        _run(self._addresses, self._jobs, self._cursor, self._stream, self._like)


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
def _pointer(context: Any, address: Any, like: Any) -> Any:
    """Return ``address`` as a pointer to elements of ``like``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(address, like), generate  # type: ignore[no-untyped-call]


@_intrinsic
def _take(context: Any, address: Any) -> Any:
    """Add one to the int64 at ``address`` atomically; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.int64), generate


@_intrinsic
def _stream_line(context: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes past the cache; ``target`` is a multiple of 64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = ir.VectorType(ir.IntType(32), 16).as_pointer()
        loaded = builder.load(builder.inttoptr(args[1], line), align=1)
        store = builder.store(loaded, builder.inttoptr(args[0], line), align=64)
        hint = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_intrinsic
def _fence(context: Any) -> Any:
    """Order streamed writes before whatever tells another thread that they are done."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@_jit
def _view(address: Any, length: Any, like: Any) -> Any:
    return numba.carray(_pointer(address, like), length)  # type: ignore[attr-defined]


@_jit
def _run(addresses: Any, jobs: Any, cursor: Any, stream: Any, like: Any) -> None:
    item = _ITEM_BYTES // like.itemsize
    space = np.empty(_SPAN_BYTES + _LINE_BYTES, np.uint8)
    buffer = (space.ctypes.data + _LINE_BYTES - 1) // _LINE_BYTES * _LINE_BYTES
    job, first, at = -1, 0, 0
    count = 0
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
            count = (jobs[job, 2] + item - 1) // item
        start = (number - first) * item
        length = min(item, jobs[job, 2] - start)
        _run_item(addresses[at:], jobs[job], start, length, buffer, stream, like)


@_jit
def _run_item(
    addresses: Any, job: Any, start: Any, length: Any, buffer: Any, stream: Any, like: Any
) -> None:
    num_values, num_targets = job[0], job[1]
    span = _SPAN_BYTES // like.itemsize
    for low in range(start, start + length, span):
        size = min(span, start + length - low)
        offset = low * like.itemsize
        source = addresses[0] + offset
        if num_values > 1:
            _sum_span(addresses, num_values, offset, _view(buffer, size, like), like)
            source = buffer
        for target in range(num_values, num_values + num_targets):
            if stream:
                _stream_span(addresses[target] + offset, source, size, like)
            else:
                _copy_span(addresses[target] + offset, source, size, like)


@_jit
def _sum_span(addresses: Any, num_values: Any, offset: Any, total: Any, like: Any) -> None:
    size = total.shape[0]
    a = _view(addresses[0] + offset, size, like)
    b = _view(addresses[1] + offset, size, like)
    done = 2
    if num_values >= 4:
        c = _view(addresses[2] + offset, size, like)
        d = _view(addresses[3] + offset, size, like)
        done = 4
        for i in range(size):
            total[i] = a[i] + b[i] + c[i] + d[i]
    else:
        for i in range(size):
            total[i] = a[i] + b[i]
    while done + 4 <= num_values:
        a = _view(addresses[done] + offset, size, like)
        b = _view(addresses[done + 1] + offset, size, like)
        c = _view(addresses[done + 2] + offset, size, like)
        d = _view(addresses[done + 3] + offset, size, like)
        done += 4
        for i in range(size):
            total[i] = total[i] + a[i] + b[i] + c[i] + d[i]
    while done < num_values:
        a = _view(addresses[done] + offset, size, like)
        done += 1
        for i in range(size):
            total[i] += a[i]


@_jit
def _copy_span(target: Any, source: Any, size: Any, like: Any) -> None:
    to = _view(target, size, like)
    of = _view(source, size, like)
    for i in range(size):
        to[i] = of[i]


@_jit
def _stream_span(target: Any, source: Any, size: Any, like: Any) -> None:
    # An element that straddles two lines cannot be streamed; torch never makes one, but a view
    # of foreign memory may.
    head = min(size, (-target % _LINE_BYTES) // like.itemsize)
    lines = (size - head) * like.itemsize // _LINE_BYTES
    if target % like.itemsize:
        head, lines = size, 0
    _copy_span(target, source, head, like)
    moved = head * like.itemsize
    for _ in range(lines):
        _stream_line(target + moved, source + moved)
        moved += _LINE_BYTES
    done = moved // like.itemsize
    _copy_span(target + moved, source + moved, size - done, like)
