import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.collective.bank.crew import segments

from bireme.collective.bank.segment import MOST_OFFERS, Layout, Segment, make_file
from bireme.errors import RemoteProtocolError


@contextlib.contextmanager
def two():
    found = segments(2, 4096)
    try:
        yield found
    finally:
        for each in found:
            each.close()


def test_what_one_rank_writes_the_other_sees():
    with two() as (first, second):
        first.area(0, 1)[:] = 3
        assert second.area(0, 1).tolist() == [3] * 4096
        assert not second.area(0, 0).any()
        first.words[first.step_word(0)] = 77
        assert second.words[second.step_word(0)] == 77
        first.label(0, 1)[:5] = b"hello"
        assert bytes(second.label(0, 1)[:5]) == b"hello"
        assert bytes(second.label(0, 0)[:5]) == bytes(5)


def test_no_two_places_overlap():
    with two() as (first, _):
        first.write_note("x" * 2000)
        for rank in (0, 1):
            for odd in (0, 1):
                first.area(rank, odd)[:] = 10 + 2 * rank + odd
                first.label(rank, odd)[:] = bytes([20 + 2 * rank + odd]) * 64
            first.words[first.step_word(rank)] = 30 + rank
            first.words[first.state_word(rank)] = 40 + rank
            first.words[first.process_word(rank)] = 50 + rank
            first.words[first.asleep_word(rank)] = 60 + rank
            for odd in (0, 1):
                first.words[first.offers_word(rank, odd)] = 80 + 2 * rank + odd
                first.words[first.offers_word(rank, odd) + MOST_OFFERS] = 90 + 2 * rank + odd
        first.words[first.gate_word] = 70
        assert set(first.read_note(0)) == {"x"}
        for rank in (0, 1):
            for odd in (0, 1):
                assert np.all(first.area(rank, odd) == 10 + 2 * rank + odd)
                assert bytes(first.label(rank, odd)) == bytes([20 + 2 * rank + odd]) * 64
            words = [first.words[word(rank)] for word in (first.step_word, first.state_word)]
            assert words == [30 + rank, 40 + rank]
            assert first.words[first.asleep_word(rank)] == 60 + rank
            for odd in (0, 1):
                word = first.offers_word(rank, odd)
                found = first.words[word], first.words[word + MOST_OFFERS]
                assert found == (80 + 2 * rank + odd, 90 + 2 * rank + odd)
        assert first.words[first.gate_word] == 70


def test_each_rank_has_a_core_where_all_together_have_enough(monkeypatch):
    def made(*cores):
        mine = iter(cores)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: next(mine))
        found = segments(len(cores), 4096)
        for rank, each in enumerate(found):
            each.words[each.process_word(rank)] = rank
        try:
            return {each.has_core_each() for each in found}
        finally:
            for each in found:
                each.close()

    assert made({0}, {1}) == {True}
    assert made({2}, {2}) == {False}
    assert made({0, 1}, {0, 1}) == {True}
    assert made({0, 1}, {0, 1}, {1, 0}) == {False}


def test_ranks_of_one_process_have_no_core_each():
    with two() as (first, _):
        assert not first.has_core_each()


def test_a_note_that_is_too_long_is_cut_between_letters():
    with two() as (first, second):
        first.write_note("ä" * 1000)
        note = second.read_note(0)
        assert set(note) == {"ä"}
        assert len(note) > 100
        assert second.read_note(1) == ""


def test_the_file_has_no_name_and_cannot_shrink():
    layout = Layout(2, 4096)
    descriptor = make_file(layout)
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
        assert os.fstat(descriptor).st_nlink == 0
    finally:
        os.close(descriptor)


def test_another_file_is_refused_and_closed():
    with open("/proc/self/maps") as other:
        descriptor = os.dup(other.fileno())
        with pytest.raises(RemoteProtocolError, match="another size"):
            Segment(descriptor, Layout(2, 4096), 0)
        with pytest.raises(OSError):
            os.fstat(descriptor)


_HOLDER = """
import sys
from bireme.collective.bank.segment import Layout, Segment
segment = Segment(int(sys.argv[1]), Layout(2, 4096), 1)
print("held", flush=True)
if sys.argv[2] == "fork":
    import os
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("forked", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["die", "fork"])
def test_a_rank_is_alive_as_long_as_its_process(how):
    layout = Layout(2, 4096)
    descriptor = make_file(layout)
    os.set_inheritable(descriptor, True)
    segment = Segment(os.dup(descriptor), layout, 0)
    assert not segment.is_alive(1)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(descriptor), how],
        pass_fds=[descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert segment.is_alive(1)
        if how == "fork":
            assert holder.stdout.readline() == "forked\n"
        # The child that was forked lives on, and holds nothing.
        holder.kill()
        holder.wait(10)
        assert not segment.is_alive(1)
    finally:
        holder.kill()
        holder.communicate()
        segment.close()
        os.close(descriptor)
