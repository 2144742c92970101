"""Handles: done or not, results that stay, errors that are raised afresh."""

import pytest

from bireme.collective import Handle
from bireme.errors import MismatchError, StateError, WaitTimeout


def test_a_finished_handle_returns_its_result_however_often():
    handle = Handle(3, "a")
    assert not handle.done()
    handle.finish("value")
    assert handle.done()
    assert handle.id == 3
    assert handle.wait() == handle.wait(0.0) == "value"


def test_a_failed_handle_raises_an_equal_error_each_time():
    handle = Handle(1, "a")
    handle.fail(MismatchError("shapes differ"))
    with pytest.raises(MismatchError, match="shapes differ") as first:
        handle.wait()
    with pytest.raises(MismatchError, match="shapes differ") as second:
        handle.wait()
    assert first.value is not second.value


def test_waiting_drives_and_a_limit_is_an_error_that_may_be_retried():
    calls = []

    def drive(handle, timeout_s):
        calls.append(timeout_s)
        if timeout_s is None:
            handle.finish(7)

    handle = Handle(1, "a", drive)
    with pytest.raises(WaitTimeout, match="a is not done after"):
        handle.wait(0.5)
    assert handle.wait() == 7
    assert handle.wait() == 7
    assert calls == [0.5, None]


def test_an_operation_ends_once():
    handle = Handle(1, "a")
    handle.finish(None)
    with pytest.raises(StateError, match="twice"):
        handle.fail(MismatchError("late"))


def test_an_error_that_takes_other_arguments_is_raised_as_it_is():
    class OddError(Exception):
        def __init__(self, one, two):
            super().__init__(one)
            self.two = two

    handle = Handle(1, "a")
    error = OddError(1, 2)
    handle.fail(error)
    with pytest.raises(OddError) as raised:
        handle.wait()
    assert raised.value is error
