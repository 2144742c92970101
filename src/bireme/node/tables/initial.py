"""The first values of a table's rows: random numbers that are a function of the row's id.

A counter-based generator has no state that could depend on an order: the numbers of a row are
``philox(key=(seed, stream), counter=(block, id))``, wherever and whenever they are asked for.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from bireme.node.tables.index import Ints
from bireme.types.choices import Initialiser
from bireme.wire.tables import TableSpec

__all__ = ("first_rows", "philox")

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {Initialiser.ZEROS: 0, Initialiser.UNIFORM: 1, Initialiser.NORMAL: 2}
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE, _ZERO = np.uint64(1), np.uint64(0)
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


def first_rows(spec: TableSpec, ids: Ints) -> npt.NDArray[Any]:
    """Return the first values of some rows.

    Args:
        spec: The table.
        ids: Any int64 ids.

    Guarantees:
        The same bits for the same table and id, alone or among others, on machines of one kind
        (uniform rows: on all machines).

    Example:
        >>> spec = TableSpec(dim=2, seed=3)
        >>> both, one = first_rows(spec, np.array([8, 9])), first_rows(spec, np.array([9]))
        >>> both[1].tolist() == one[0].tolist()
        True
    """
    out = np.zeros((len(ids), spec.dim), np.dtype(spec.dtype.value))
    kind = _KINDS[spec.initialiser]
    if kind and spec.scale:
        _fill(ids, np.uint64(spec.seed), np.uint64(spec.stream), kind, spec.scale, out)
    return out


def philox(block: int, row: int, seed: int, stream: int) -> tuple[int, int, int, int]:
    """Return the four 64-bit words of one block of the generator.

    Example:
        >>> philox(0, 0, 0, 0)[0]
        1609277786247541068

    Source:
        Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011
        (Philox4x64-10).
    """
    words = _philox(np.uint64(block), np.int64(row), np.uint64(seed), np.uint64(stream))
    return tuple(int(word) for word in words)  # type: ignore[return-value]


def _jit(function: F) -> F:
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile each time.
        return cast("F", numba.njit(nogil=True)(function))


@_jit
def _high(a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a product of two 64-bit numbers."""
    a_low, a_high = a & _LOW, a >> _HALF
    b_low, b_high = b & _LOW, b >> _HALF
    middle = a_high * b_low + ((a_low * b_low) >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@_jit
def _philox(block: Any, row: Any, seed: Any, stream: Any) -> Any:
    c0, c1, c2, c3 = block, np.uint64(row), _ZERO, _ZERO
    k0, k1 = seed, stream
    for _ in range(10):
        high0, low0 = _high(_M0, c0), _M0 * c0
        high1, low1 = _high(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


@_jit
def _unit(word: Any) -> Any:
    """Return a number from 0 to below 1 with 53 random bits."""
    return np.float64(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_jit
def _fill(ids: Any, seed: Any, stream: Any, kind: Any, scale: Any, out: Any) -> None:
    dim = out.shape[1]
    four = np.empty(4, np.float64)
    for number in range(ids.shape[0]):
        for block in range((dim + 3) // 4):
            c0, c1, c2, c3 = _philox(np.uint64(block), ids[number], seed, stream)
            four[0], four[1], four[2], four[3] = _unit(c0), _unit(c1), _unit(c2), _unit(c3)
            for each in range(0, 4, 2):
                if kind == 1:
                    four[each] = 2.0 * four[each] - 1.0
                    four[each + 1] = 2.0 * four[each + 1] - 1.0
                else:
                    # Box and Muller's pair; 1 - u is never 0.
                    radius = math.sqrt(-2.0 * math.log(1.0 - four[each]))
                    angle = 2.0 * math.pi * four[each + 1]
                    four[each] = radius * math.cos(angle)
                    four[each + 1] = radius * math.sin(angle)
            for each in range(min(4, dim - 4 * block)):
                out[number, 4 * block + each] = scale * four[each]
