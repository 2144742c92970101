import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.compress.slices import cut, run

MILLION = 1 << 20


@given(num_elements=st.integers(0, 200 * MILLION), num_threads=st.integers(1, 64))
def test_parts_cover_the_array_and_are_worth_a_thread(num_elements, num_threads):
    parts = cut(num_elements, num_threads)
    assert parts[0][0] == 0
    assert parts[-1][1] == num_elements
    assert all(stop == start for (_, stop), (start, _) in pairwise(parts))
    assert 1 <= len(parts) <= num_threads
    assert all(stop % 4096 == 0 and stop - start >= MILLION for start, stop in parts[:-1])


def test_short_arrays_are_not_cut():
    assert cut(0, 8) == [(0, 0)]
    assert cut(2 * MILLION - 1, 8) == [(0, 2 * MILLION - 1)]
    assert len(cut(2 * MILLION, 8)) == 2


def test_results_come_in_order_and_the_caller_takes_the_first_part():
    threads = {}
    meet = threading.Barrier(3, timeout=10)

    def task(start: int, stop: int) -> int:
        threads[start] = threading.current_thread()
        meet.wait()  # passes only if all three parts run at once
        return stop - start

    assert run(task, [(0, 5), (5, 7), (7, 8)]) == [5, 2, 1]
    assert threads[0] is threading.current_thread()
    assert len(set(threads.values())) == 3


def test_one_part_starts_no_thread():
    before = threading.active_count()
    assert run(lambda start, stop: threading.active_count(), [(0, 9)]) == [before]


@pytest.mark.parametrize("bad", [0, 4])
def test_errors_reach_the_caller_after_all_parts_have_ended(bad):
    ended = []

    def task(start: int, stop: int) -> None:
        ended.append(start)
        if start == bad:
            raise ValueError(f"part {start}")

    with pytest.raises(ValueError, match=f"part {bad}"):
        run(task, [(0, 4), (4, 8)])
    assert sorted(ended) == [0, 4]
