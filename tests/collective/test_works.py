import threading
from datetime import timedelta

import pytest
import torch

from bireme.collective.works import Lane
from bireme.errors import MismatchError, StateError, WaitTimeout


class Recorder:
    def __init__(self):
        self.broken = []
        self.lane = Lane(self.broken.append)
        self.done = []
        self.gate = threading.Event()
        self.is_held = threading.Event()

    def step(self, name):
        return lambda: self.done.append((name, threading.current_thread().name))

    def held(self):
        self.is_held.set()
        assert self.gate.wait(20)


@pytest.fixture
def recorder():
    found = Recorder()
    yield found
    found.gate.set()
    found.lane.close(lambda: None)


def test_a_call_that_is_waited_for_runs_here_when_nothing_is_ahead(recorder):
    here = threading.current_thread().name
    recorder.lane.submit(recorder.step("a"), None, is_async=False)
    assert recorder.done == [("a", here)]


def test_order_is_kept_between_calls_of_both_kinds(recorder):
    recorder.lane.submit(recorder.held, None, is_async=True)
    works = [recorder.lane.submit(recorder.step(i), None, is_async=True) for i in range(3)]
    assert not works[0].is_completed()
    threading.Timer(0.05, recorder.gate.set).start()
    recorder.lane.submit(recorder.step("last"), None, is_async=False)
    assert [name for name, _ in recorder.done] == [0, 1, 2, "last"]
    assert {name for _, name in recorder.done} == {"bireme-collectives"}
    assert all(work.is_success() for work in works)
    here = threading.current_thread().name
    recorder.lane.submit(recorder.step("idle again"), None, is_async=False)
    assert recorder.done[-1] == ("idle again", here)


def test_an_error_reaches_who_waits_and_breaks_the_group(recorder):
    def fail():
        raise OSError("lost")

    work = recorder.lane.submit(fail, None, is_async=True)
    with pytest.raises(OSError, match="lost"):
        work.wait()
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), OSError)
    assert [str(each) for each in recorder.broken] == ["lost"]
    with pytest.raises(OSError, match="lost"):
        recorder.lane.submit(fail, None, is_async=False)


def test_a_harmless_error_breaks_nothing(recorder):
    def fail():
        raise MismatchError("different")

    with pytest.raises(MismatchError):
        recorder.lane.submit(fail, None, is_async=False)
    assert recorder.broken == []


def test_an_interrupt_leaves_the_lane_usable_and_the_others_told(recorder):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorder.lane.submit(interrupt, None, is_async=False)
    assert len(recorder.broken) == 1
    recorder.lane.submit(recorder.step("after"), None, is_async=False)
    assert recorder.done


def test_waiting_has_a_limit(recorder):
    work = recorder.lane.submit(recorder.held, None, is_async=True)
    with pytest.raises(WaitTimeout, match=r"0\.05 s"):
        work.wait(timedelta(seconds=0.05))
    recorder.gate.set()
    assert work.wait(timedelta(seconds=20))


def test_futures_hold_the_result_before_and_after_the_end(recorder):
    tensor = torch.ones(2)
    work = recorder.lane.submit(recorder.held, [tensor], is_async=True)
    early = work.get_future().then(lambda future: future.value()[0] * 3)
    assert not early.done()
    recorder.gate.set()
    assert early.wait().tolist() == [3.0, 3.0]
    assert work.get_future().wait() == [tensor]
    assert work.result() == [tensor]


def test_futures_carry_the_error(recorder):
    def fail():
        recorder.held()
        raise OSError("lost")

    work = recorder.lane.submit(fail, None, is_async=True)
    future = work.get_future()
    recorder.gate.set()
    with pytest.raises(Exception, match="lost"):
        future.wait()


def test_what_hangs_on_a_future_may_wait_for_another_operation(recorder):
    work = recorder.lane.submit(recorder.held, [torch.ones(1)], is_async=True)

    def more(_):
        nested = recorder.lane.submit(recorder.step("nested"), [torch.zeros(1)], is_async=True)
        return nested.get_future().wait()[0]

    chained = work.get_future().then(more)
    after = recorder.lane.submit(recorder.step("after"), None, is_async=True)
    recorder.gate.set()
    assert chained.wait().tolist() == [0.0]
    assert after.wait()
    assert {name for name, _ in recorder.done} == {"nested", "after"}


def test_closing_ends_what_is_queued_and_what_runs(recorder):
    running = recorder.lane.submit(recorder.held, None, is_async=True)
    assert recorder.is_held.wait(20)
    queued = recorder.lane.submit(recorder.step("never"), None, is_async=True)
    recorder.lane.close(recorder.gate.set)
    assert running.wait()
    with pytest.raises(StateError, match="before its turn"):
        queued.wait()
    with pytest.raises(StateError, match="destroyed"):
        recorder.lane.submit(recorder.step("x"), None, is_async=False)
    assert recorder.done == []
    names = {each.name for each in threading.enumerate()}
    assert not names & {"bireme-collectives", "bireme-futures"}
