import ctypes
import mmap
import threading
import time

import pytest

from bireme.collective.bank import futex
from bireme.collective.bank.futex import Futex, futex_number
from bireme.errors import UnsupportedError


@pytest.fixture
def word():
    memory = mmap.mmap(-1, 4096)
    value = ctypes.c_uint32.from_buffer(memory)
    yield value, ctypes.c_void_p(ctypes.addressof(value))
    del value


def test_a_sleeper_wakes_when_another_changes_the_word_and_wakes_it(word):
    value, address = word
    sleeping = Futex(limit_s=20)
    seen = []

    def sleep():
        while not value.value:
            sleeping.wait(address, 0)
        seen.append(value.value)

    thread = threading.Thread(target=sleep)
    thread.start()
    start_s = time.monotonic()
    value.value = 7
    sleeping.wake(address)
    thread.join(15)
    assert seen == [7]
    assert time.monotonic() - start_s < 10


def test_a_changed_word_is_not_waited_for(word):
    _, address = word
    start_s = time.monotonic()
    Futex(limit_s=20).wait(address, 5)
    assert time.monotonic() - start_s < 10


def test_a_wait_ends_at_its_limit(word):
    _, address = word
    start_s = time.monotonic()
    Futex(limit_s=0.05).wait(address, 0)
    assert 0.04 < time.monotonic() - start_s < 5


def test_an_address_of_nobody_is_an_error():
    with pytest.raises(OSError, match="futex"):
        Futex().wait(ctypes.c_void_p(8), 0)


def test_systems_without_futexes_are_told_what_to_use(monkeypatch):
    monkeypatch.setattr(futex.sys, "platform", "darwin")
    assert futex_number("arm64") is None
    with pytest.raises(UnsupportedError, match="gloo"):
        Futex()
