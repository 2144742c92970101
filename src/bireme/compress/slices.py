"""Spreads one pass over a long array over the cores, with threads of its own.

The compiled kernels are serial and release the interpreter's lock, and this module runs them on
parts of the array at once. Numba's own parallel loops are not used: its default threading layer
ends the process when two Python threads enter it together, which stores do. Threads live for one
call, so there is no pool to share, to shut down, or to lose in a fork; they cost about 0.1 ms, and
an array must be long to be worth that.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ("cut", "run")

T = TypeVar("T")

_MIN_PER_THREAD = 1 << 20
_ALIGN = 1 << 12


def cut(num_elements: int, num_threads: int) -> list[tuple[int, int]]:
    """Return the (start, stop) of the parts to work on at once.

    Args:
        num_elements: Length of the array, >= 0.
        num_threads: Most parts to cut, >= 1.

    Guarantees:
        The parts cover the array in order without overlap, and there is at least one. All but
        the last are multiples of 4096 elements, so that no byte of codes is shared. None is
        under a million elements unless it is the only one or the last.

    Example:
        >>> cut(100, num_threads=8)
        [(0, 100)]
        >>> cut(3_000_000, num_threads=2)
        [(0, 1503232), (1503232, 3000000)]
    """
    num_parts = max(1, min(num_threads, num_elements // _MIN_PER_THREAD))
    step = -(-num_elements // (num_parts * _ALIGN)) * _ALIGN
    if step == 0:
        return [(0, 0)]
    return [(start, min(start + step, num_elements)) for start in range(0, num_elements, step)]


def run(task: Callable[[int, int], T], parts: Sequence[tuple[int, int]]) -> list[T]:
    """Return ``task(start, stop)`` of each part, run at once in as many threads.

    The calling thread takes the first part, so that one part starts no thread.

    Raises:
        Exception: Whatever ``task`` raised first, after all parts have ended.
    """
    first, *others = parts
    if not others:
        return [task(*first)]
    with ThreadPoolExecutor(len(others), thread_name_prefix="bireme-compress") as pool:
        futures = [pool.submit(task, *part) for part in others]
        return [task(*first), *(future.result() for future in futures)]
