"""Ctrl-C is held back for the length of a step, and no longer."""

import os
import signal
import threading

import pytest

from bireme.transport.interrupts import Shield


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass


def test_outside_it_comes_at_once(shield):
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_inside_it_waits_for_the_end(shield):
    reached = []

    def work():
        with shield:
            with shield:
                interrupt()
                reached.append("inner")
            reached.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["inner", "outer"]
    with shield:
        reached.append("once")
    assert reached[-1] == "once"


def test_lowering_gives_the_handler_back():
    before = signal.getsignal(signal.SIGINT)
    shield = Shield()
    shield.raise_up()
    assert signal.getsignal(signal.SIGINT) != before
    shield.lower()
    assert signal.getsignal(signal.SIGINT) == before
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_handler_of_somebody_else_is_left_alone(shield):
    mine = signal.signal(signal.SIGINT, signal.SIG_IGN)
    shield.lower()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signal.signal(signal.SIGINT, mine)


def test_other_threads_are_none_of_its_business():
    shield = Shield()
    before = signal.getsignal(signal.SIGINT)

    def use():
        shield.raise_up()
        with shield:
            pass
        shield.lower()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) == before
