"""Buffers: used again, but never while somebody can see them."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.transport.pool import BufferPool, PooledBuffer


@given(st.integers(1, 1 << 20))
def test_sizes_are_exact_and_waste_is_bounded(size_bytes: int) -> None:
    pool = BufferPool(1 << 24)
    view = pool.take(size_bytes)
    assert view.nbytes == size_bytes
    pool.give(view)
    assert size_bytes <= pool.idle_bytes <= size_bytes + max(4096, size_bytes // 8)


def test_large_memory_asks_for_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "bireme.transport.pool.advise_huge", lambda memory: asked.append(len(memory))
    )
    pool = BufferPool(1 << 24)
    for size_bytes in (1000, 1 << 19, (1 << 20) - 1, (2 << 20) - 7):
        view = pool.take(size_bytes)
        view[-1] = 1
        pool.give(view)
    assert asked == [1 << 20, 2 << 20]
    pool.take(2 << 20)
    assert asked == [1 << 20, 2 << 20]


def test_idle_memory_is_bounded() -> None:
    pool = BufferPool(100_000)
    views = [pool.take(40_000) for _ in range(5)]
    for view in views:
        pool.give(view)
    assert pool.idle_bytes <= 100_000


def test_what_replaces_values_that_last_may_all_be_idle() -> None:
    pool = BufferPool(1 << 20)
    values = [pool.take(1 << 20) for _ in range(20)]
    for _ in range(20):
        replaced = [pool.take(1 << 20) for _ in values]
        for view in values:
            pool.give(view)
        values = replaced
    assert pool.idle_bytes == 18 << 20


def test_sizes_of_the_past_do_not_crowd_out_those_in_use() -> None:
    pool = BufferPool(100_000)
    old = [pool.take(20_480) for _ in range(4)]
    for view in old:
        pool.give(view)
    new = pool.take(40_960)
    memory = new.obj
    pool.give(new)
    assert pool.idle_bytes <= 100_000
    assert pool.take(40_960).obj is memory
    # Of the old ones as many are left as fit.
    before = {id(view.obj) for view in old}
    assert sum(id(pool.take(20_480).obj) in before for _ in range(4)) == 2


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20))
def test_idle_memory_serves_for_less_within_bounds(given_bytes: int, wanted_bytes: int) -> None:
    pool = BufferPool(1 << 24)
    pool.give(pool.take(given_bytes))
    idle_bytes = pool.idle_bytes
    view = pool.take(wanted_bytes)
    assert view.nbytes == wanted_bytes <= memoryview(view.obj).nbytes
    if pool.idle_bytes == 0:
        fits = idle_bytes <= wanted_bytes + 4096 or idle_bytes <= wanted_bytes * 1.5
        assert fits or memoryview(view.obj).nbytes != idle_bytes
    else:
        assert pool.idle_bytes == idle_bytes
        assert idle_bytes < wanted_bytes or idle_bytes > wanted_bytes * 1.5
    pool.give(view)
    assert pool.take(wanted_bytes).obj is view.obj


def test_memory_in_use_and_idle_is_no_more_than_was_in_use_at_once() -> None:
    pool = BufferPool(1 << 30)
    for size_bytes in range(1 << 20, 2 << 20, 1 << 16):
        views = [pool.take(size_bytes + 4096 * number) for number in range(16)]
        used_bytes = sum(memoryview(view.obj).nbytes for view in views)
        for view in views:
            pool.give(view)
        assert pool.idle_bytes <= 1.15 * used_bytes


def test_what_finalizers_leave_counts_as_idle_at_once() -> None:
    pool = BufferPool(100_000)
    buffers = [PooledBuffer(pool, 40_960) for _ in range(4)]
    del buffers
    assert pool.idle_bytes == 2 * 40_960


def test_what_a_finalizer_leaves_in_the_middle_of_the_pool_is_taken_later() -> None:
    pool = BufferPool(1 << 20)
    view = pool.take(50_000)
    with pool._lock:
        pool.forget(view)
    assert pool.idle_bytes == 0
    assert pool.take(50_000).obj is view.obj


def test_memory_larger_than_what_may_be_idle_is_not_kept() -> None:
    pool = BufferPool(100_000)
    for view in pool.take(4096), pool.take(200_000):
        pool.give(view)
    assert pool.idle_bytes == 4096


def test_an_allocated_buffer_is_used_again_when_its_last_view_is_gone() -> None:
    pool = BufferPool(1 << 20)
    buffer = PooledBuffer(pool, 50_000)
    buffer.view[:4] = b"mine"
    kept = buffer.view[:4]
    buffer.release()
    for _ in range(3):
        pool.take(50_000)[:4] = b"else"
    assert bytes(kept) == b"mine"
    del kept
    assert bytes(pool.take(50_000)[:4]) == b"mine"


def test_threads_never_get_the_same_memory() -> None:
    pool = BufferPool(1 << 20)
    wrong: list[int] = []

    def use(number: int) -> None:
        for _ in range(500):
            view = pool.take(4096)
            view[0] = number
            if view[0] != number:
                wrong.append(number)
            pool.give(view)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
