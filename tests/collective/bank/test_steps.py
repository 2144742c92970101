import os
import threading
import time

import pytest
from tests.collective.bank.crew import segments

from bireme.collective.bank.futex import Futex
from bireme.collective.bank.looking import Looking
from bireme.collective.bank.segment import State
from bireme.collective.bank.steps import Steps
from bireme.errors import CollectiveError, RankLost, StateError, WaitTimeout


class Clocks:
    def __init__(self, size, first_step=0):
        self.segments = segments(size, 4096)
        names = [10 + rank for rank in range(size)]
        self.all = [Steps(each, names, first_step) for each in self.segments]

    def run(self, work, ranks=None):
        results = {}

        def call(rank):
            try:
                results[rank] = work(rank, self.all[rank])
            except Exception as error:
                results[rank] = error

        ranks = range(len(self.all)) if ranks is None else ranks
        threads = [threading.Thread(target=call, args=(rank,)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        return results

    def close(self):
        for each in self.segments:
            each.close()


@pytest.fixture
def clocks(request):
    made = []

    def make(*args, **kwargs):
        made.append(Clocks(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_nobody_reads_what_was_not_written_before(clocks):
    """The rule that the collectives rest on, over the point where the count starts anew."""
    crew = clocks(3, first_step=2**32 - 40)
    areas = [[s.area(r, odd) for r in range(3)] for s in crew.segments[:1] for odd in (0, 1)]

    def work(rank, steps):
        steps.begin("test", 20)
        for number in range(100):
            odd = steps.step & 1
            areas[odd][rank][:8] = number * 3 % 251 + rank
            steps.end_step()
            for other in range(3):
                if set(areas[odd][other][:8].tolist()) != {number * 3 % 251 + other}:
                    return number, other, areas[odd][other][:8].tolist()
        return steps.step

    assert crew.run(work) == dict.fromkeys(range(3), 60)


@pytest.mark.parametrize("looks", [False, True])
def test_no_wake_is_lost(clocks, looks):
    """A lost one would cost a minute here."""
    crew = clocks(3)
    for steps in crew.all:
        steps._futex = Futex(limit_s=60)
        steps._looking = Looking(5e-6 if looks else 0.0)

    def work(rank, steps):
        steps.begin("test", 30)
        for _ in range(1500):
            steps.end_step()
        return steps.step

    assert crew.run(work) == dict.fromkeys(range(3), 1500)


def test_nobody_is_woken_where_nobody_sleeps(clocks, monkeypatch):
    crew = clocks(2)
    woken = []
    monkeypatch.setattr(crew.all[0]._futex, "wake", woken.append)
    words = crew.segments[1].words
    for step in range(1, 4):
        words[crew.segments[1].step_word(1)] = step
        crew.all[0].end_step()
    assert woken == []
    words[crew.segments[1].asleep_word(1)] = 1
    words[crew.segments[1].step_word(1)] = 4
    crew.all[0].end_step()
    assert len(woken) == 1
    assert words[crew.segments[1].gate_word] == 4


def test_who_dies_before_it_opens_the_gate_holds_nobody_up(clocks):
    crew = clocks(2)
    words = crew.segments[1].words
    thread = threading.Thread(target=crew.all[0].end_step)
    thread.start()
    while not words[crew.segments[1].asleep_word(0)]:
        time.sleep(0.001)
    words[crew.segments[1].step_word(1)] = 1
    thread.join(10)
    assert not thread.is_alive()
    assert not words[crew.segments[1].asleep_word(0)]


def test_ranks_of_one_process_do_not_look(clocks):
    assert clocks(2).all[0]._looking.limit_s() == 0


def test_who_is_missing_is_named_at_the_limit(clocks):
    crew = clocks(4)

    def work(rank, steps):
        steps.begin("all_reduce sum of 3", 1.0)
        steps.end_step()

    found = crew.run(work, ranks=[0, 2])
    for error in found.values():
        assert isinstance(error, (WaitTimeout, CollectiveError))
    assert any("ranks 11, 13" in str(error) for error in found.values())
    assert all("all_reduce sum of 3" in str(error) for error in found.values())


def test_a_rank_that_leaves_is_missed_only_by_what_it_does_not_take_part_in(clocks):
    crew = clocks(2)
    crew.all[1].begin("x", 5)
    crew.run(lambda _, steps: steps.end_step())
    crew.all[1].leave()
    assert "left the group" in str(crew.run(lambda _, steps: steps.end_step(), ranks=[0])[0])
    with pytest.raises(StateError, match="left the group"):
        crew.all[0].begin("y", 5)


def test_the_last_step_of_a_rank_that_left_counts(clocks):
    crew = clocks(2)
    leaving = crew.all[1]
    leaver = threading.Thread(target=leaving.end_step)
    leaver.start()
    while crew.segments[0].words[crew.segments[0].step_word(1)] != 1:
        time.sleep(0.001)
    leaving_done = crew.run(lambda _, steps: steps.end_step(), ranks=[0])
    leaver.join(10)
    leaving.leave()
    assert leaving_done == {0: None}


def test_a_rank_that_gives_up_tells_why(clocks):
    crew = clocks(3)

    def work(rank, steps):
        steps.begin("broadcast", 20)
        if rank == 1:
            steps.give_up("KeyboardInterrupt")
        else:
            steps.end_step()

    start_s = time.monotonic()
    found = crew.run(work)
    assert time.monotonic() - start_s < 5
    for rank in (0, 2):
        assert isinstance(found[rank], CollectiveError)
        assert "rank 11 gave up: KeyboardInterrupt" in str(found[rank])


def test_a_death_is_told_to_those_who_wait_for_others(clocks, monkeypatch):
    """Rank 0 waits for rank 1, which waits for rank 2, which is dead."""
    crew = clocks(3)
    for steps in crew.all:
        monkeypatch.setattr(steps, "is_alive", lambda rank: rank != 2)
    found = crew.run(lambda _, steps: steps.end_step(), ranks=[0, 1])
    for error in found.values():
        assert isinstance(error, RankLost)
        assert "rank 12 ended" in str(error)


@pytest.mark.parametrize("end", ["dies", "gives up"])
def test_an_end_is_seen_while_another_is_only_late(clocks, monkeypatch, end):
    """Rank 2 waits for rank 0 first, which comes late; meanwhile rank 1 ends."""
    crew = clocks(3)
    steps = crew.all[2]
    steps.begin("barrier", 60)
    if end == "dies":
        monkeypatch.setattr(steps, "is_alive", lambda rank: rank != 1)
    else:
        crew.all[1].give_up("out of memory")
    start_s = time.monotonic()
    with pytest.raises(CollectiveError, match=r"rank 11 (ended|gave up: out of memory)"):
        steps.end_step()
    assert time.monotonic() - start_s < 5


def test_an_operation_is_cancelled_from_another_thread(clocks):
    crew = clocks(2)
    steps = crew.all[0]
    steps.begin("barrier", 30)
    timer = threading.Timer(0.1, steps.cancel, ["the group was destroyed"])
    timer.start()
    start_s = time.monotonic()
    with pytest.raises(StateError, match="destroyed"):
        steps.end_step()
    timer.join()
    assert time.monotonic() - start_s < 5
    assert crew.segments[1].words[crew.segments[1].state_word(0)] == State.GAVE_UP


def test_a_forked_child_does_not_speak_for_its_parent(clocks):
    crew = clocks(2)
    child = os.fork()
    if not child:
        crew.all[0].give_up("a child ends")
        crew.all[0].leave()
        os._exit(0)
    os.waitpid(child, 0)
    assert crew.segments[1].words[crew.segments[1].state_word(0)] == State.HERE
