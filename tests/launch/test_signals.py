"""Signals wait in the inbox, and handlers are as before afterwards."""

import os
import select
import signal
import threading

import pytest

from bireme.launch.signals import SignalInbox


def test_signals_are_taken_in_order():
    with SignalInbox() as inbox:
        assert inbox.take() == []
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert select.select([inbox.fd], [], [], 5)[0] == [inbox.fd]
        assert sorted(inbox.take()) == [signal.SIGINT, signal.SIGTERM]
        assert inbox.take() == []
        assert select.select([inbox.fd], [], [], 0)[0] == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_handlers_are_given_back(signum):
    outside = signal.signal(signum, signal.default_int_handler)
    try:
        with SignalInbox():
            assert signal.getsignal(signum) != signal.default_int_handler
        assert signal.getsignal(signum) == signal.default_int_handler
    finally:
        signal.signal(signum, outside)


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalInbox() as inbox:
            os.kill(os.getpid(), signal.SIGHUP)
            assert inbox.take() == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_gets_an_empty_inbox():
    taken = []

    def use():
        with SignalInbox() as inbox:
            taken.append(inbox.take())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert taken == [[]]


def test_the_launcher_may_add_its_own():
    with SignalInbox() as inbox:
        inbox.put(signal.SIGTERM)
        assert inbox.take() == [signal.SIGTERM]
