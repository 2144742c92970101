"""Which thread drives: the one that waits, else the keeper."""

import os
import signal
import threading
import time

import pytest
from tests.interrupting import storm

from bireme.collective.drive import Drive

LIMIT_S = 10.0


class Fake:
    """An engine whose control hands out what is put, and whose work is noted."""

    def __init__(self):
        self.arrived = threading.Condition()
        self.inbox = []
        self.queue = []
        self.woken = False
        self.done = {}
        self.threads = {"control": set(), "work": set()}
        self.main_listens = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.drive = Drive(self.control, lambda: bool(self.queue), self.work, self.wake, "keeper")

    def put(self, item):
        with self.arrived:
            self.inbox.append(item)
            self.arrived.notify_all()

    def wake(self):
        with self.arrived:
            self.woken = True
            self.arrived.notify_all()

    def control(self, timeout_s):
        self.threads["control"].add(threading.current_thread().name)
        if threading.current_thread() is threading.main_thread():
            self.main_listens.set()
        with self.arrived:
            self.arrived.wait_for(lambda: self.inbox or self.woken, timeout_s)
            self.woken = False
            self.queue += self.inbox
            self.inbox.clear()

    def work(self):
        self.threads["work"].add(threading.current_thread().name)
        item = self.queue.pop(0)
        assert self.gate.wait(LIMIT_S)
        self.done[item] = threading.current_thread().name


@pytest.fixture
def fake():
    fake = Fake()
    yield fake
    fake.gate.set()
    fake.drive.stop(LIMIT_S)
    assert not fake.drive._keeper.is_alive()


def test_a_caller_that_waits_does_it_itself(fake):
    fake.put("a")
    fake.drive.until(lambda: "a" in fake.done, LIMIT_S)
    assert fake.done["a"] == threading.current_thread().name


def test_the_keeper_does_what_nobody_waits_for(fake):
    fake.drive.start()
    fake.put("a")
    fake.drive.nudge()
    limit_s = time.monotonic() + LIMIT_S
    while "a" not in fake.done:
        assert time.monotonic() < limit_s
        time.sleep(0.001)
    assert fake.done["a"] == "keeper"
    fake.put("b")
    fake.drive.until(lambda: "b" in fake.done, LIMIT_S)


def test_the_keeper_sleeps_as_long_as_a_caller_waits(fake):
    fake.drive.start()
    caller = threading.Thread(target=lambda: fake.drive.until(lambda: "a" in fake.done, LIMIT_S))
    caller.start()
    limit_s = time.monotonic() + LIMIT_S
    while not fake.drive._is_resting:
        assert time.monotonic() < limit_s
        time.sleep(0.001)
    fake.put("a")
    caller.join(LIMIT_S)
    assert fake.done["a"] == caller.name
    assert not fake.drive._is_resting
    # It is back for what nobody waits for.
    fake.put("b")
    while "b" not in fake.done:
        assert time.monotonic() < limit_s
        time.sleep(0.001)
    assert fake.done["b"] == "keeper"


def test_a_wait_ends_at_its_limit(fake):
    began_s = time.monotonic()
    fake.drive.until(lambda: False, 0.05)
    assert 0.04 < time.monotonic() - began_s < LIMIT_S


def test_who_listens_hears_of_what_another_thread_has_done(fake):
    """The keeper works on what a caller, who listens meanwhile, waits for."""
    fake.gate.clear()
    fake.drive.start()
    fake.put("a")
    fake.drive.nudge()
    limit_s = time.monotonic() + LIMIT_S
    while "keeper" not in fake.threads["work"]:
        assert time.monotonic() < limit_s
        time.sleep(0.001)
    threading.Timer(0.05, fake.gate.set).start()
    fake.drive.until(lambda: "a" in fake.done, LIMIT_S)
    assert fake.done["a"] == "keeper"


def test_callers_wait_for_each_other(fake):
    def wait(name):
        fake.drive.until(lambda: name in fake.done, LIMIT_S)

    threads = [threading.Thread(target=wait, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for name in "abc":
        fake.put(name)
        fake.drive.nudge()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(fake.done) == ["a", "b", "c"]


def test_an_error_of_the_work_reaches_who_did_it_and_frees_the_role(fake):
    fake.queue.append("a")
    fake.work = None

    def broken():
        fake.queue.clear()
        raise RuntimeError("broken")

    fake.drive._work = broken
    with pytest.raises(RuntimeError, match="broken"):
        fake.drive.until(lambda: False, LIMIT_S)
    fake.drive.until(lambda: True, LIMIT_S)
    assert fake.drive._worker == 0


def press_when(event):
    """Press Ctrl-C as soon as something has happened."""

    def press():
        assert event.wait(LIMIT_S)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()


def test_ctrl_c_reaches_who_listens_without_a_limit(fake):
    fake.drive.start()

    press_when(fake.main_listens)
    with pytest.raises(KeyboardInterrupt):
        fake.drive.until(lambda: False, None)
    fake.put("a")
    fake.drive.until(lambda: "a" in fake.done, LIMIT_S)
    assert "a" in fake.done


def test_who_listens_looks_up_now_and_then_for_a_ctrl_c_that_came_as_it_fell_asleep():
    limits_s = []
    drive = Drive(limits_s.append, lambda: False, lambda: None, lambda: None, "never started")
    drive.until(lambda: bool(limits_s), None)
    drive.until(lambda: len(limits_s) > 1, 0.01)
    assert 0.01 < limits_s[0] <= 0.2
    assert 0 < limits_s[1] <= 0.01


def test_ctrl_c_reaches_who_waits_for_another_thread(fake):
    fake.drive._shield.raise_up()
    fake.drive._controller = -1
    fake.drive._worker = -1

    waits = threading.Event()
    press_when(waits)
    with pytest.raises(KeyboardInterrupt):
        # It asks whether it is done before it waits, and is told no.
        fake.drive.until(waits.set, LIMIT_S)
    assert fake.drive._waiting == 0


def test_signals_are_given_back_at_the_end(fake):
    before = signal.getsignal(signal.SIGINT)
    fake.drive.start()
    assert signal.getsignal(signal.SIGINT) != before
    fake.drive.stop(LIMIT_S)
    assert signal.getsignal(signal.SIGINT) == before


def test_whenever_ctrl_c_comes_the_next_wait_goes_on():
    setup = """
from bireme.collective.drive import Drive

news, todo, made = [], [], []

def control(limit_s):
    if news:
        todo.append(news.pop())

drive = Drive(control, lambda: bool(todo), lambda: made.append(todo.pop()), lambda: None, "keeper")
drive.start()
"""
    struck = """
news.append(1)
drive.until(lambda: len(made) >= target or not (news or todo), None)
"""
    # Nobody else takes these turns but the keeper, which gives them back.
    unharmed = """
assert not drive._waiting, "a wait was not ended"
assert threading.get_ident() not in (drive._controller, drive._worker), "a turn stays taken"
assert drive._changed.acquire(timeout=10), "a lock stays locked"
drive._changed.release()
"""
    storm(setup=setup, struck=struck, unharmed=unharmed, end="drive.stop(10)")
