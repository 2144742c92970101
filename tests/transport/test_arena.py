"""Shared memory: blocks never overlap, come back whole, and leave no name."""

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.transport.arena import Arena, SharedBuffer, map_segment

MIB = 1 << 20


@given(st.lists(st.tuples(st.integers(1, 3 * MIB), st.integers(0, 5)), max_size=40))
def test_blocks_never_overlap_and_all_memory_comes_back(steps: list[tuple[int, int]]) -> None:
    arena = Arena(64 * MIB)
    held = []
    for size_bytes, num_drops in steps:
        block = arena.take(size_bytes)
        if block is not None:
            assert block.size_bytes >= size_bytes
            held.append(block)
        spans = sorted((b.segment.number, b.start, b.start + b.size_bytes) for b in held)
        for (segment, _, end), (next_segment, start, _) in itertools.pairwise(spans):
            assert segment != next_segment or end <= start
        for _ in range(min(num_drops, len(held))):
            arena.drop([held.pop(0)])
    arena.drop(held)
    assert arena.used_bytes == 0
    whole = arena.take(16 * MIB)
    assert whole is not None
    assert whole.start == 0
    arena.close()


def test_low_memory_is_used_again_first() -> None:
    arena = Arena(64 * MIB)
    first, second = arena.take(MIB), arena.take(MIB)
    assert first is not None
    assert second is not None
    arena.drop([first])
    third = arena.take(1000)
    assert third is not None
    assert third.start == 0
    arena.close()


def test_a_view_is_found_in_its_block() -> None:
    arena = Arena(64 * MIB)
    block = arena.take(10_000)
    assert block is not None
    buffer = SharedBuffer(arena, block, 10_000)
    found = arena.find(buffer.view[100:200])
    assert found == (block, block.start + 100)
    assert block.num_users == 2
    assert arena.find(memoryview(bytearray(10))) is None
    assert arena.find(memoryview(b"read-only")) is None
    arena.close()


def test_a_buffer_is_free_when_its_views_and_readers_are_gone() -> None:
    arena = Arena(64 * MIB)
    block = arena.take(10_000)
    assert block is not None
    buffer = SharedBuffer(arena, block, 10_000)
    found = arena.find(buffer.view)
    assert found is not None
    kept = buffer.view[:10]
    buffer.release()
    del kept
    again = arena.take(10_000)
    assert again is not None
    assert again.start != block.start
    arena.drop([block])
    last = arena.take(10_000)
    assert last is not None
    assert last.start == block.start
    arena.close()


def test_a_full_arena_says_so() -> None:
    arena = Arena(MIB)
    assert arena.take(2 * MIB) is None
    assert arena.take(MIB) is not None
    assert arena.take(1) is None
    arena.close()
    assert Arena(0).take(1) is None


def test_a_mapped_segment_shows_what_is_written_and_has_no_name() -> None:
    arena = Arena(64 * MIB)
    block = arena.take(100)
    assert block is not None
    segment = block.segment
    mapped = map_segment(os.dup(segment.descriptor), segment.size_bytes)
    segment.view[block.start : block.start + 5] = b"hello"
    assert bytes(mapped[block.start : block.start + 5]) == b"hello"
    with pytest.raises(PermissionError):
        os.ftruncate(segment.descriptor, 0)
    assert os.fstat(segment.descriptor).st_nlink == 0
    arena.close()
    assert bytes(mapped[block.start : block.start + 5]) == b"hello"


def test_files_that_are_no_segments_are_refused(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "file")
    with open(path, "wb") as file:
        file.truncate(4096)
    with pytest.raises(ValueError, match="size"):
        map_segment(os.open(path, os.O_RDWR), 8192)
    with pytest.raises((ValueError, OSError)):
        map_segment(os.open(path, os.O_RDWR), 4096)
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 4096)
    with pytest.raises(ValueError, match="shrink"):
        map_segment(unsealed, 4096)
