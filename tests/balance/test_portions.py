import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.balance.portions import Limits, portions
from bireme.errors import ConfigError

lines = st.tuples(st.floats(0, 10), st.floats(0.001, 10))
limits = st.tuples(st.integers(0, 5), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(st.tuples(lines, limits), min_size=1, max_size=8), st.data())
def test_portions_add_up_within_their_limits(workers, data):
    (given_lines, given_limits) = zip(*workers, strict=True)
    lows, highs = zip(*given_limits, strict=True)
    total = data.draw(st.integers(sum(lows), sum(highs)))
    sizes = portions(total, given_lines, lows, highs)
    assert sum(sizes) == total
    assert all(low <= size <= high for low, size, high in zip(lows, sizes, highs, strict=True))


@given(st.lists(lines, min_size=2, max_size=6), st.integers(20, 500))
def test_no_worker_could_give_samples_to_another_and_all_be_done_sooner(given_lines, total):
    count = len(given_lines)
    sizes = portions(total, given_lines, [0] * count, [total] * count)
    ends = [a + c * b for (a, c), b in zip(given_lines, sizes, strict=True)]
    # Whoever is last could spare more than rounding cost only if another were done so much earlier.
    last = max((end, index) for index, end in enumerate(ends) if sizes[index])[1]
    for index, (a, c) in enumerate(given_lines):
        slack = c + given_lines[last][1]
        assert index == last or a + c * (sizes[index] + 1) >= ends[last] - slack - 1e-9


def test_fixed_times_count():
    # 2 + b = 1 * (30 - b)
    assert portions(30, [(2.0, 1.0), (0.0, 1.0)], [0, 0], [30, 30]) == [14, 16]


def test_one_too_slow_to_be_in_time_gets_the_least():
    assert portions(10, [(100.0, 1.0), (0.0, 1.0)], [1, 1], [10, 10]) == [1, 9]


def test_largest_remainders_the_first_of_equals():
    assert portions(11, [(0.0, 1 / 3), (0.0, 1 / 2), (0.0, 1.0)], [0] * 3, [11] * 3) == [5, 4, 2]
    assert portions(2, [(0.0, 1.0)] * 3, [0] * 3, [2] * 3) == [1, 1, 0]


@pytest.mark.parametrize("total", [1, 21])
def test_out_of_range(total):
    with pytest.raises(ConfigError, match=f"{total} samples do not fit"):
        portions(total, [(0.0, 1.0)] * 2, [1, 1], [10, 10])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((3, 2, (9, 9)), "has no 2 samples for each of 2"),
        ((30, 1, (9, 9)), "leaves no place for a batch of 30"),
        ((10, 3, (2, 9)), "below minimum=3"),
    ],
)
def test_impossible_limits(arguments, text):
    with pytest.raises(ConfigError, match=text):
        Limits(*arguments)


def test_room_shrinks_when_the_living_cannot_hold_a_batch():
    limits = Limits(10, 1, (6, 6))
    assert limits.room([True, True]) == 10
    assert limits.room([True, False]) == 6
    assert limits.cut(6, [(0.0, 1.0)] * 2, [True, False]) == [6, 0]


def test_a_small_batch_lowers_the_minimum():
    assert Limits(20, 5, (20, 20)).cut(4, [(0.0, 1.0), (0.0, 9.0)], [True, True]) == [2, 2]
