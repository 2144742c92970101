import os
import signal
import threading
import time

import pytest
from tests.interrupting import storm

from bireme.node.pump import Pump
from bireme.transport.interrupts import Shield


class Loop:
    """A loop whose events are functions that the driving thread calls."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list = []
        self._woken = False
        self.drivers: list[str] = []
        self.inside = 0

    def put(self, event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def step(self) -> None:
        self.inside += 1
        assert self.inside == 1, "two threads drive at once"
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._woken, timeout=1)
                self._woken = False
                events, self._events = self._events, []
            for event in events:
                self.drivers.append(threading.current_thread().name)
                event()
        finally:
            self.inside -= 1


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def pump(loop):
    pump = Pump(loop.step, loop.wake, "keeper")
    pump.start()
    yield pump
    pump.stop()


def test_who_waits_drives(loop):
    done = []
    loop.put(lambda: done.append(1))
    # Without a keeper nobody else could.
    Pump(loop.step, loop.wake, "never started").until(lambda: bool(done))
    assert loop.drivers == [threading.current_thread().name]


def test_the_keeper_drives_when_nobody_waits(loop, pump):
    done = threading.Event()
    loop.put(done.set)
    assert done.wait(10)
    assert loop.drivers == ["keeper"]


def test_the_keeper_hands_the_loop_over(loop, pump):
    kept = threading.Event()
    loop.put(kept.set)
    assert kept.wait(10)
    done = []
    threading.Timer(0.02, loop.put, [lambda: done.append(1)]).start()
    pump.until(lambda: bool(done))
    assert loop.drivers == ["keeper", threading.current_thread().name]


def test_the_keeper_takes_over_again_after_every_call(loop, pump):
    for _ in range(5):
        done = []
        loop.put(lambda: done.append(1))  # noqa: B023
        pump.until(lambda: bool(done))  # noqa: B023
        kept = threading.Event()
        loop.put(kept.set)
        assert kept.wait(10)
    assert loop.drivers[1::2] == ["keeper"] * 5


def test_the_keeper_takes_over_at_once_while_there_is_work_in_the_background(loop):
    # The grace is longer than the test: only the nudge can have moved the keeper.
    pump = Pump(loop.step, loop.wake, "keeper", grace_s=30.0)
    pump.start()
    try:
        pump.background(1)
        for _ in range(5):
            kept = threading.Event()
            loop.put(kept.set)
            assert kept.wait(10)
            done = []
            loop.put(lambda: done.append(1))  # noqa: B023
            pump.until(lambda: bool(done))  # noqa: B023
        kept = threading.Event()
        loop.put(kept.set)
        assert kept.wait(10)
        pump.background(-1)
    finally:
        pump.stop()


def test_all_who_wait_return_when_their_condition_holds(loop, pump):
    done: set[int] = set()
    returned = []

    def wait_for(number: int) -> None:
        pump.until(lambda: number in done)
        returned.append(number)

    threads = [threading.Thread(target=wait_for, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()

    def bring(number: int) -> None:
        done.add(number)
        pump.completed()

    for number in reversed(range(8)):
        loop.put(lambda number=number: bring(number))
    for thread in threads:
        thread.join(10)
    assert sorted(returned) == list(range(8))


def test_an_error_reaches_the_thread_that_drove(loop):
    def fail() -> None:
        raise ZeroDivisionError

    pump = Pump(loop.step, loop.wake, "never started")
    loop.put(fail)
    with pytest.raises(ZeroDivisionError):
        pump.until(lambda: False)
    done = []
    loop.put(lambda: done.append(1))
    pump.until(lambda: bool(done))


def test_an_error_of_the_keeper_reaches_the_next_caller(loop, pump):
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise ZeroDivisionError

    loop.put(fail)
    assert failed.wait(10)
    with pytest.raises(ZeroDivisionError):
        pump.until(lambda: False)


def test_without_a_keeper_callers_go_on(loop, pump):
    pump.stop()
    pump.stop()
    assert "keeper" not in [thread.name for thread in threading.enumerate()]
    done = []
    loop.put(lambda: done.append(1))
    pump.until(lambda: bool(done))


def test_a_handler_of_ctrl_c_may_wait_in_the_middle_of_a_turn(loop):
    saved, before = [], signal.getsignal(signal.SIGINT)

    def save(_signum, _frame):
        loop.put(lambda: saved.append("all"))
        pump.until(lambda: bool(saved))

    signal.signal(signal.SIGINT, save)
    shield = Shield()
    shield.raise_up()
    try:
        pump = Pump(loop.step, loop.wake, "never started", shield)
        done = []
        loop.put(lambda: os.kill(os.getpid(), signal.SIGINT))
        loop.put(lambda: done.append(1))
        pump.until(lambda: bool(saved and done))
    finally:
        shield.lower()
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_reaches_a_caller_that_waits_for_another_thread(loop, shield):
    pump = Pump(loop.step, loop.wake, "never started", shield)
    over = []
    other = threading.Thread(target=pump.until, args=(lambda: bool(over),))
    other.start()
    deadline_s = time.monotonic() + 10
    while not loop.inside:
        assert time.monotonic() < deadline_s

    def press() -> None:
        while not pump._waiting:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        pump.until(lambda: False)
    loop.put(lambda: over.append(1))
    other.join(10)
    assert not other.is_alive()


def test_a_step_is_finished_before_ctrl_c_comes(shield):
    steps = []

    def step() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
        steps.append("whole")

    pump = Pump(step, lambda: None, "never started", shield)
    with pytest.raises(KeyboardInterrupt):
        pump.until(lambda: False)
    assert steps == ["whole"]


def test_whenever_ctrl_c_comes_the_next_call_goes_on():
    setup = """
from bireme.transport.interrupts import Shield
from bireme.node.pump import Pump

shield = Shield()
shield.raise_up()
made = []
pump = Pump(lambda: made.append(1), lambda: None, "keeper", shield)
pump.start()
"""
    struck = """
pump.background(1)
pump.background(-1)
pump.until(lambda: len(made) >= target)
"""
    storm(setup=setup, struck=struck, end="pump.until(lambda: len(made) >= target)\npump.stop()")
