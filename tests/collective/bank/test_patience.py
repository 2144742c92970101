import os
import signal
import threading

import pytest
from torch.distributed import HashStore

from bireme.collective.bank.patience import are_set_within


def test_it_ends_when_all_are_set():
    store = HashStore()
    store.set("a", "1")
    thread = threading.Timer(0.05, store.set, ["b", "1"])
    thread.start()
    assert are_set_within(store, ["a", "b"], 50.0)
    thread.join()


def test_it_ends_at_its_limit():
    assert not are_set_within(HashStore(), ["a"], 0.02)


def test_it_hears_signals():
    def heard(*_):
        raise InterruptedError("heard")

    before = signal.signal(signal.SIGUSR1, heard)
    thread = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1])
    thread.start()
    try:
        with pytest.raises(InterruptedError, match="heard"):
            are_set_within(HashStore(), ["a"], 50.0)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_store_that_is_gone_is_an_error():
    class Gone:
        def check(self, keys):
            raise RuntimeError("no way to the store")

    with pytest.raises(RuntimeError, match="no way"):
        are_set_within(Gone(), ["a"], 50.0)
