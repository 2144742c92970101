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


class Joining(Recorder):
    """Runs two of what is handed over at most."""

    def __init__(self):
        super().__init__()
        self.lane = Lane(self.broken.append, self.run_joint)
        self.runs = []

    def run_joint(self, items):
        self.runs.append(list(items))
        if items[0] == "wrong":
            raise MismatchError("different")
        self.done += items[:2]
        return 2

    def submit(self, name, key="key"):
        return self.lane.submit(
            lambda: self.done.append(name), name, is_async=True, joint=key and (key, name)
        )


@pytest.fixture
def joining():
    found = Joining()
    yield found
    found.gate.set()
    found.lane.close(lambda: None)


def test_what_lies_next_to_each_other_runs_as_one_and_the_rest_later(joining):
    joining.lane.submit(joining.held, None, is_async=True)
    works = [joining.submit(name) for name in "abc"]
    works += [joining.submit("d", "other"), joining.submit("e", None), joining.submit("f", None)]
    joining.gate.set()
    for work in works:
        assert work.wait()
    assert joining.done == [*"abcdef"]
    assert joining.runs == [[*"abc"]]


def test_an_error_of_a_joint_run_befalls_the_first(joining):
    joining.lane.submit(joining.held, None, is_async=True)
    works = [joining.submit(name) for name in ("wrong", "a", "b")]
    joining.gate.set()
    with pytest.raises(MismatchError):
        works[0].wait()
    assert works[1].wait()
    assert works[2].wait()
    assert joining.runs == [["wrong", "a", "b"], ["a", "b"]]
    assert joining.broken == []


def test_who_waits_runs_what_is_queued(recorder):
    recorder.lane.submit(recorder.held, None, is_async=True)
    works = [recorder.lane.submit(recorder.step(i), None, is_async=True) for i in range(5)]
    threading.Timer(0.05, recorder.gate.set).start()
    works[3].wait()
    assert [name for name, _ in recorder.done][:4] == [0, 1, 2, 3]
    here = threading.current_thread().name
    assert {name for _, name in recorder.done[:4]} == {here}
    assert works[4].get_future().wait() is None


def test_a_queue_goes_on_when_nobody_waits_any_more(recorder):
    recorder.lane.submit(recorder.held, None, is_async=True)
    works = [recorder.lane.submit(recorder.step(i), None, is_async=True) for i in range(3)]
    with pytest.raises(WaitTimeout):
        works[2].wait(timedelta(seconds=0.01))
    recorder.gate.set()
    assert works[0].wait()
    assert works[2].get_future().wait() is None
    assert works[2].wait(timedelta(seconds=10))


def test_an_interrupt_while_running_anothers_operation_reaches_who_waits(recorder):
    def interrupt():
        raise KeyboardInterrupt

    recorder.lane.submit(recorder.held, None, is_async=True)
    first = recorder.lane.submit(interrupt, None, is_async=True)
    last = recorder.lane.submit(recorder.step("last"), None, is_async=True)
    threading.Timer(0.05, recorder.gate.set).start()
    with pytest.raises(KeyboardInterrupt):
        last.wait()
    assert isinstance(first.exception(), KeyboardInterrupt)
    assert len(recorder.broken) == 1
    assert last.get_future().wait() is None
