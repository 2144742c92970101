import pytest

from bireme.data import BalancedBatchSampler
from bireme.errors import ConfigError, StateError
from bireme.kvstore.local import LocalStore
from bireme.train.counting import Counting


class TwoWorkers(LocalStore):
    num_workers = 2


class WithoutRounds(TwoWorkers):
    meets_in_rounds = False


@pytest.fixture
def sampler():
    sampler = BalancedBatchSampler(12, batch_size=6, shuffle=False)
    sampler.connect()
    return sampler


def test_what_is_said_with_a_step_counts_before_what_was_said_earlier():
    counting = Counting(2, None)
    counting.begin([3.0, 1.0])
    assert counting.of_step([1, 2]) == [1.0, 2.0]
    assert counting.of_step(None) == [1.0, 1.0]


def test_without_a_word_the_portion_of_the_batch_counts(sampler):
    counting = Counting(2, None)
    counting.sampler = sampler
    assert counting.of(None) == [1.0, 1.0]
    next(iter(sampler))
    assert counting.of(None) == [3.0, 3.0]
    assert counting.of([4, 2]) == [4.0, 2.0]


def test_a_step_begins_once():
    counting = Counting(1, None)
    counting.refuse_begun()
    counting.begin([4.0])
    with pytest.raises(StateError, match="begun already"):
        counting.refuse_begun()
    counting.of_step(None)
    counting.refuse_begun()


@pytest.mark.parametrize("store", [None, LocalStore(), WithoutRounds()])
def test_who_is_alone_needs_samples(store):
    with pytest.raises(ConfigError, match="num_samples is 0"):
        Counting(2, store).of([0, 0])


def test_where_others_count_in_the_same_sum_a_worker_may_have_none():
    assert Counting(2, TwoWorkers()).of([0, 0]) == [0.0, 0.0]


def test_counts_that_are_refused_use_up_what_was_said_before():
    counting = Counting(1, None)
    counting.begin([4.0])
    with pytest.raises(ConfigError):
        counting.of_step(-1)
    assert counting.of_step(None) == [1.0]
