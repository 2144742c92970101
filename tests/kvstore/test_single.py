"""What the conformance battery cannot see: which sums a store asks its reducer for."""

import copy
import pickle
import threading

import pytest
import torch

import bireme
from bireme.errors import StateError, UnsupportedError
from bireme.kvstore.reduce import HostReducer
from bireme.kvstore.single import SingleProcessStore


class Recorder(HostReducer):
    def __init__(self) -> None:
        super().__init__()
        self.runs: list[list[tuple[object, int, int]]] = []

    def run(self, jobs) -> None:
        self.runs.append([(job.key, len(job.values), len(job.outs)) for job in jobs])
        super().run(jobs)


class Plain(SingleProcessStore):
    def _settle(self, pushes) -> None:
        pass

    def set_gradient_compression(self, compression) -> None:
        raise AssertionError


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def store(recorder):
    with Plain("plain", recorder) as store:
        store.init([0, 1], [torch.zeros(3)] * 2)
        yield store


def test_a_call_is_one_batch(store, recorder):
    store.push([0, 1], [[torch.ones(3)] * 2] * 2)
    store.pull([0, 1], [[torch.ones(3)] * 4] * 2)
    assert recorder.runs == [[(0, 2, 1), (1, 2, 1)], [(0, 1, 4), (1, 1, 4)]]


def test_pushpull_is_fused_when_nothing_overlaps(store, recorder):
    values = [[torch.ones(3), torch.ones(3)] for _ in range(2)]
    store.pushpull([0, 1], values)
    store.pushpull([0, 1], values, [torch.empty(3), torch.empty(3)])
    assert recorder.runs == [[(0, 2, 3), (1, 2, 3)], [(0, 2, 2), (1, 2, 2)]]


def test_pushpull_is_not_fused_with_an_updater_or_overlap(store, recorder):
    value = torch.ones(3)
    store.pushpull(0, [value, value])
    store.set_updater(lambda key, merged, stored: stored.add_(merged))
    store.pushpull(0, value, torch.empty(3))
    assert [[job[1:] for job in run] for run in recorder.runs] == [
        [(2, 1)],
        [(1, 2)],
        [(1, 1)],
        [(1, 1)],
    ]


def test_close_waits_for_a_push_under_way(store):
    inside, leave = threading.Event(), threading.Event()

    def slow(key, merged, stored):
        inside.set()
        assert leave.wait(10)
        stored += merged

    store.set_updater(slow)
    pusher = threading.Thread(target=store.push, args=(0, torch.ones(3)))
    closer = threading.Thread(target=store.close)
    pusher.start()
    assert inside.wait(10)
    closer.start()
    store.num_dead_nodes()  # still open: the push holds its key
    leave.set()
    pusher.join(10)
    closer.join(10)
    assert not pusher.is_alive()
    assert not closer.is_alive()
    with pytest.raises(StateError, match="closed"):
        store.num_dead_nodes()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_store_cannot_be_duplicated(duplicate):
    with bireme.kvstore.create("local") as store:
        with pytest.raises(UnsupportedError, match="'local' store cannot be copied or pickled"):
            duplicate(store)
        store.init("a", torch.ones(1))
