"""Runs of pages: lowest first, joined when they come back."""

import itertools
import mmap

from hypothesis import given
from hypothesis import strategies as st

from bireme.transport.pages import Runs, advise_huge


@given(st.lists(st.integers(1, 40), max_size=30), st.randoms(use_true_random=False))
def test_what_comes_back_is_one_piece_again(sizes: list[int], random: object) -> None:
    runs = Runs(400)
    taken = [(start, size) for size in sizes if (start := runs.take(size)) is not None]
    ends = sorted((start, start + size) for start, size in taken)
    assert all(end <= after for (_, end), (after, _) in itertools.pairwise(ends))
    assert runs.free_bytes == 400 - sum(size for _, size in taken)
    random.shuffle(taken)  # type: ignore[attr-defined]
    for start, size in taken:
        runs.give(start, size)
    assert runs.take(400) == 0


def test_the_lowest_place_that_fits_is_taken() -> None:
    runs = Runs(100)
    for _ in range(5):
        runs.take(20)
    runs.give(60, 20)
    runs.give(20, 20)
    assert (runs.take(10), runs.take(20), runs.take(10)) == (20, 60, 30)


def test_advice_changes_no_bit() -> None:
    memory = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:3] = b"abc"
    advise_huge(memory)
    assert memory[:4] == b"abc\0"
