import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme
from bireme.consistency.local import LocalSteps, Outer, deal
from bireme.errors import ConfigError


def test_defaults_are_those_of_the_papers():
    nesterov = LocalSteps(outer="nesterov")
    assert nesterov.outer_arguments() == {"lr": 0.7, "momentum": 0.9, "nesterov": True}
    assert LocalSteps().outer_arguments() == {"lr": 1.0, "momentum": 0.0}
    assert LocalSteps(outer="elastic").pull(3) == pytest.approx(0.3)
    assert (LocalSteps(delay=1).kept, LocalSteps().kept) == (0.5, 0.0)
    assert LocalSteps(delay=1, mixing=0.0).kept == 0.0
    assert LocalSteps(delay=1, outer="elastic").kept == 0.0
    assert LocalSteps(outer=Outer.NESTEROV) == nesterov
    assert bireme.LocalSteps is LocalSteps


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"every": 0}, "every must be an integer >= 1"),
        ({"every": 2.0}, "every must be an integer"),
        ({"every": True}, "every must be an integer"),
        ({"outer": "mean"}, "outer must be one of 'average', 'nesterov', 'elastic'; got 'mean'"),
        ({"every": 4, "fragments": 5}, "fragments must be an integer >= 1 and <= every"),
        ({"every": 4, "delay": 4}, "delay must be an integer >= 0 and <= every - 1"),
        ({"staleness": -1}, "staleness must be an integer >= 0"),
        ({"lr": 0}, "lr must be a finite number > 0"),
        ({"lr": float("nan")}, "lr must be a finite number > 0"),
        ({"lr": float("inf")}, "lr must be a finite number > 0"),
        ({"lr": "fast"}, "lr must be a finite number > 0"),
        ({"momentum": 1}, "momentum must be a finite number >= 0 and < 1"),
        ({"mixing": 1.0}, "mixing must be a finite number >= 0 and < 1"),
        ({"outer": "elastic", "momentum": 0.9}, "momentum means nothing to outer='elastic'"),
        ({"outer": "elastic", "mixing": 0.5}, "mixing means nothing to outer='elastic'"),
        ({"outer": "nesterov", "momentum": 0.0}, "needs a momentum > 0"),
    ],
)
def test_wrong_numbers_are_named(wrong, text):
    with pytest.raises(ConfigError, match=text):
        LocalSteps(**wrong)


@given(st.integers(1, 30), st.data())
def test_each_fragment_leaves_once_in_every_period_and_the_last_at_its_end(every, data):
    steps = LocalSteps(every=every, fragments=data.draw(st.integers(1, every)))
    for begin in (1, 1 + every, 1 + 7 * every):
        period = range(begin, begin + every)
        left = [fragment for step in period for fragment in steps.leaving(step)]
        assert sorted(left) == list(range(steps.fragments))
        assert steps.fragments - 1 in steps.leaving(begin + every - 1)
        # Evenly: no step has more than its part.
        assert max(len(steps.leaving(step)) for step in period) <= 1


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 6))
def test_fragments_differ_by_no_more_than_one_parameter(sizes, num_fragments):
    dealt = deal(sizes, num_fragments)
    assert len(dealt) == len(sizes)
    loads = [0] * num_fragments
    for size, fragment in zip(sizes, dealt, strict=True):
        assert loads[fragment] == min(loads)
        loads[fragment] += size
    assert max(loads) - min(loads) <= max(sizes, default=0)


def test_new_parameters_go_where_least_is_held():
    assert deal([5, 5], 3, [10, 0, 7]) == [1, 1]
