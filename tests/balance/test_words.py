import pytest

from bireme.balance.words import Word, length, read, write
from bireme.errors import ConfigError


def total(*lists, factor=1.0):
    return [factor * sum(column) for column in zip(*lists, strict=True)]


def test_everyone_hears_everyone():
    said = [write(3, part, Word(5, False, 0.1 * part), [7, 8]) for part in range(3)]
    told = read(3, total(*said))
    assert told.words == tuple(Word(5, False, 0.1 * part) for part in range(3))
    assert told.plan == (7.0, 8.0)


def test_the_dead_say_nothing_and_a_scaled_sum_says_the_same():
    said = [write(3, part, Word(5, False, 0.5), [7, 8]) for part in (0, 2)]
    told = read(3, total(*said, factor=3 / 2))
    assert told.words == (Word(5, False, 0.5), None, Word(5, False, 0.5))
    assert told.plan == pytest.approx((7.0, 8.0))
    assert told.factor == 1.5


def test_fresh_workers_leave_the_plan_to_the_others():
    old, new = write(2, 0, Word(5, False, 0.5), [7]), write(2, 1, Word(5, True, 0.0), [1])
    assert read(2, total(old, new)).plan == (7.0,)
    assert read(2, total(old, new)).words[1].fresh
    both = [write(2, part, Word(0, True, 0.0), [1]) for part in range(2)]
    assert read(2, total(*both)).plan is None


def test_plans_that_differ_show():
    said = [write(2, part, Word(0, False, 0.0), [part]) for part in range(2)]
    assert read(2, total(*said)).plan == (0.5,)


def test_length():
    assert length(3, 2) == len(write(3, 0, Word(0, True, 0.0), [1, 2])) == 15
    with pytest.raises(ConfigError, match="too few"):
        read(3, [0.0] * 12)
