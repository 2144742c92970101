import random

import pytest

from bireme.balance.choosing import ByLoad, BySpeed, chooser
from bireme.balance.portions import Limits
from bireme.errors import ConfigError

ALL = [True, True]


def limits(batch_size=60, count=2, **options):
    maximum = options.get("maximum", (batch_size,) * count)
    return Limits(batch_size, options.get("minimum", 1), maximum)


def steps(chosen, sizes, seconds, count):
    """Let workers take ``seconds[i](b)`` for a number of steps; return the last proposal."""
    for _ in range(count):
        for part, size in enumerate(sizes):
            chosen.learn(part, size, seconds[part](size))
    return chosen.better(sizes, [True] * len(sizes))


def test_what_a_list_means():
    assert chooser(None, limits()).neutral(ALL) == [30, 30]
    assert chooser([3, 1], limits()).neutral(ALL) == [45, 15]
    assert chooser((1, 2), limits()).neutral(ALL) == [20, 40]
    assert chooser("auto", limits()).neutral(ALL) == [30, 30]


@pytest.mark.parametrize(
    ("loads", "text"),
    [
        ("fast", "must be numbers or 'auto', got 'fast'"),
        ([1, 2, 3], "holds 3 numbers for 2 workers"),
        ([1], "holds 1 numbers for 2 workers"),
        ([1, 0], "finite number > 0, got 0"),
        ([1, -1], "finite number > 0"),
        ([1, float("nan")], "finite number > 0"),
        ([1, "2"], "finite number > 0"),
        ([True, 1], "finite number > 0"),
    ],
)
def test_lists_that_mean_nothing(loads, text):
    with pytest.raises(ConfigError, match=text):
        chooser(loads, limits())


def test_fixed_portions_stay_and_go_to_those_who_are_left():
    chosen = ByLoad([3, 2, 1], limits(60, 3))
    assert not chosen.learns
    assert steps(chosen, [30, 20, 10], [lambda b: b, lambda b: 9 * b, lambda b: b], 20) is None
    assert chosen.without([30, 20, 10], [True, False, True]) == [45, 0, 15]
    assert chosen.joined([45, 0, 15], [True] * 3, [False, True, False]) == [30, 20, 10]


def test_speeds_decide_once_there_is_enough_to_tell():
    chosen = BySpeed(limits())
    fast, slow = (lambda b: 0.01 * b), (lambda b: 0.02 * b)
    assert steps(chosen, [30, 30], [fast, slow], 4) is None
    assert steps(chosen, [30, 30], [fast, slow], 1) == [40, 20]
    # Its effect must be seen first, and then it is right.
    assert steps(chosen, [40, 20], [fast, slow], 20) is None


def test_gains_below_the_limit_change_nothing():
    chosen = BySpeed(limits(1000))
    assert steps(chosen, [500, 500], [lambda b: 1.04 * b, lambda b: 0.96 * b], 30) is None
    chosen = BySpeed(limits(1000))
    assert steps(chosen, [500, 500], [lambda b: 1.1 * b, lambda b: 0.9 * b], 30) is not None


def test_noise_must_be_smaller_than_the_gain():
    draws = random.Random(0)
    chosen = BySpeed(limits(1000, 4))
    sizes = [250] * 4
    for _ in range(300):
        found = steps(chosen, sizes, [lambda b: b * draws.gauss(1.0, 0.1)] * 4, 1)
        assert found is None


def test_maxima_and_minima_hold():
    chosen = BySpeed(limits(maximum=(35, 60)))
    assert steps(chosen, [30, 30], [lambda b: b, lambda b: 9 * b], 5) == [35, 25]
    chosen = BySpeed(limits(minimum=15))
    assert steps(chosen, [30, 30], [lambda b: b, lambda b: 9 * b], 5) == [45, 15]


def test_those_who_are_left_keep_their_proportions():
    chosen = BySpeed(limits(60, 3))
    assert chosen.without([30, 20, 10], [True, False, True]) == [45, 0, 15]


def test_a_new_worker_begins_with_an_equal_portion():
    chosen = BySpeed(limits(60, 3))
    assert steps(chosen, [20] * 3, [lambda b: b, lambda b: 2 * b, lambda b: 4 * b], 5)
    assert chosen.joined([30, 20, 10], [True] * 3, [False, True, False]) == [30, 20, 10]
    assert chosen.joined([45, 0, 15], [True] * 3, [False, True, False]) == [30, 20, 10]
    assert chosen.joined([45, 5, 10], [True] * 3, [True, False, False]) == [20, 13, 27]
    # Nothing is known any more.
    assert chosen.better([30, 20, 10], [True] * 3) is None


def test_state_of_another_number_of_workers():
    chosen = BySpeed(limits())
    with pytest.raises(ConfigError, match="2 speed models"):
        chosen.load(BySpeed(limits(60, 3)).state())
