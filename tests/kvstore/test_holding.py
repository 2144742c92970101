import threading

import pytest
import torch

from bireme.errors import StateError
from bireme.kvstore.holding import Holding
from bireme.kvstore.table import Table


@pytest.fixture
def table():
    table = Table()
    table.add({0: torch.zeros(3), 1: torch.zeros(3)})
    return table


@pytest.fixture
def holding(table):
    return Holding("plain", table)


class Watched:
    """A key's lock that calls back before it is taken, and gives up instead of hanging."""

    def __init__(self, before) -> None:
        self._lock, self._before = threading.Lock(), before

    def acquire(self) -> None:
        self._before(threading.current_thread().name)
        if not self._lock.acquire(timeout=5):
            raise AssertionError("two calls block each other")

    def release(self) -> None:
        self._lock.release()


def test_calls_on_the_same_keys_in_opposite_orders_do_not_block_each_other(table, holding):
    holds_0, second_asks_0 = threading.Event(), threading.Event()

    def before_0(thread: str) -> None:
        if thread == "second":
            second_asks_0.set()

    def before_1(thread: str) -> None:
        if thread == "first":
            # Holding key 0, it stops until the other thread wants that, having taken whatever
            # it takes before it.
            holds_0.set()
            assert second_asks_0.wait(10)

    for entry, before in zip(table.all(), (before_0, before_1), strict=True):
        entry.lock = Watched(before)
    done = []

    def work(keys: list[int]) -> None:
        with holding.keys(table.find(keys)):
            done.append(keys)

    first = threading.Thread(target=work, args=([0, 1],), name="first", daemon=True)
    second = threading.Thread(target=work, args=([1, 0],), name="second", daemon=True)
    first.start()
    assert holds_0.wait(10)
    second.start()
    first.join(10)
    second.join(10)
    assert done == [[0, 1], [1, 0]]


def test_a_call_inside_a_call_is_refused_and_everything_is_let_go(table, holding):
    with holding.keys(table.find([0])):
        for inner in (holding.keys(table.find([1])), holding.everything()):
            with pytest.raises(StateError, match="inside its own updater"), inner:
                pass
    with holding.everything() as entries:
        assert [entry.key for entry in entries] == [0, 1]


def test_a_call_that_fails_lets_go(table, holding):
    with pytest.raises(ZeroDivisionError), holding.keys(table.find([1])):
        raise ZeroDivisionError
    assert not any(entry.lock.locked() for entry in table.all())
    with holding.keys(table.find([1])):
        assert [entry.lock.locked() for entry in table.all()] == [False, True]
        assert not torch.is_grad_enabled()


def test_who_waited_while_a_store_was_closed_is_refused(table, holding):
    waits, found = threading.Event(), []
    entry = table.all()[0]

    class Told:
        def __init__(self, lock):
            self._lock = lock

        def acquire(self):
            waits.set()
            return self._lock.acquire(timeout=10)

        def release(self):
            self._lock.release()

    def work():
        try:
            with holding.keys([entry]):
                found.append("held")
        except StateError as error:
            found.append(str(error))

    with holding.everything():
        entry.lock = Told(entry.lock)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert waits.wait(10)
        holding.is_closed = True
    thread.join(10)
    assert found == ["this 'plain' store is closed; create another one"]
    assert not entry.lock._lock.locked()
