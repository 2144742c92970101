import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme.horovod.torch as hvd
from bireme.collective import SingleProcess, Topology
from bireme.horovod.session import CURRENT


class Seat(SingleProcess):
    def __init__(self, rank, size):
        super().__init__()
        self.place = Topology.on_one_machine(rank, size)

    @property
    def topology(self):
        return self.place


def dealt(size, make):
    """Return what ``make`` gives on each of ``size`` ranks."""
    found = []
    for rank in range(size):
        CURRENT._engine = Seat(rank, size)
        found.append(make())
    CURRENT._engine = None
    return found


@given(st.integers(0, 50), st.integers(1, 5), st.booleans(), st.integers(0, 3), st.integers(0, 9))
def test_every_index_that_is_left_is_dealt_and_all_get_as_many(n, size, shuffle, epoch, batches):
    def make():
        sampler = hvd.elastic.ElasticSampler(range(n), shuffle=shuffle, seed=5)
        sampler.set_epoch(epoch)
        for number in range(batches):
            sampler.record_batch(number, 2)
        sampler.load_state_dict(sampler.state_dict())
        assert len(list(sampler)) == len(sampler)
        return list(sampler)

    parts = dealt(size, make)
    order = list(range(n))
    if shuffle:
        random.Random(5 + epoch).shuffle(order)
    left = order[2 * size * batches :]
    assert len({len(part) for part in parts}) == 1
    woven = [index for row in zip(*parts, strict=True) for index in row]
    assert woven[: len(left)] == left
    assert len(woven) - len(left) < size
    assert set(woven) == set(left)


def test_orders_differ_between_epochs_and_an_epoch_starts_anew(hvd):
    sampler = hvd.elastic.ElasticSampler(range(100))
    first = list(sampler)
    sampler.record_batch(0, 10)
    assert sampler.processed_num == 10
    sampler.reset()
    assert list(sampler) == first[10:]
    sampler.set_epoch(1)
    assert sampler.processed_num == 0
    assert sorted(sampler) == list(range(100))
    assert list(sampler) != first


def test_before_init_it_says_what_to_do():
    with pytest.raises(ValueError, match=r"use hvd.init\(\)"):
        hvd.elastic.ElasticSampler(range(3))
