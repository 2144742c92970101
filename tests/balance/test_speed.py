import json
import random

import pytest

from bireme.balance.speed import SpeedModel
from bireme.errors import ConfigError


def learned(pairs, **options):
    model = SpeedModel(**{"warmup": 0, **options})
    for samples, seconds in pairs:
        model.learn(samples, seconds)
    return model


def test_it_is_proportional_until_sizes_differ():
    fixed, each = learned([(10, 3.0)] * 5).line
    assert (fixed, each) == pytest.approx((0.0, 0.3), abs=0.02)
    assert learned([(10, 3.0)] * 5).predict(10) == pytest.approx(3.0)


def test_it_tells_fixed_time_from_time_for_each_sample():
    model = learned([(b, 2.0 + 0.1 * b) for b in (10, 30, 20, 40, 10, 30)])
    assert model.predict(25) == pytest.approx(4.5, rel=0.02)
    assert model.predict(60) == pytest.approx(8.0, rel=0.05)


def test_time_that_does_not_grow_or_falls_with_samples():
    level = learned([(10, 1.0), (20, 1.0)] * 4)
    assert level.predict(15) == pytest.approx(1.0, rel=0.1)
    assert level.line[1] > 0
    assert learned([(10, 1.0), (20, 0.8)] * 4).line[1] > 0


def test_convex_times_have_no_negative_part():
    assert learned([(10, 1.0), (20, 4.0)] * 4).line[0] == 0.0


def test_first_steps_do_not_count():
    model = learned([(10, 50.0), (10, 9.0), (10, 1.0)], warmup=2)
    assert model.predict(10) == pytest.approx(1.0)


def test_single_slow_and_fast_steps_do_not_count():
    model = learned([(10, 1.0)] * 5)
    before = model.predict(10)
    assert not model.learn(10, 7.0)
    assert not model.learn(10, 0.01)
    assert not model.learn(10, 7.0)
    assert model.learn(10, 1.0)
    assert not model.learn(10, 7.0)
    assert not model.learn(10, 7.0)
    assert model.predict(10) == pytest.approx(before)


def test_three_in_a_row_are_a_new_speed():
    model = learned([(10, 1.0)] * 20)
    assert [model.learn(10, 2.0) for _ in range(3)] == [False, False, True]
    assert model.predict(10) == pytest.approx(2.0)


def test_a_large_change_of_size_is_no_odd_step_whatever_is_fixed():
    for fixed in (0.0, 0.5, 0.9):
        model = learned([(100, 1.0)] * 5)
        assert model.learn(25, fixed + (1 - fixed) / 4)


def test_a_slow_drift_is_followed():
    model = learned([(10, 1.0 * 1.02**step) for step in range(60)])
    assert model.predict(10) == pytest.approx(1.02**59, rel=0.2)


def test_its_error_is_that_of_the_noise():
    draws = random.Random(1)
    noisy = learned([(10, draws.gauss(1.0, 0.05)) for _ in range(200)])
    assert 0.005 < noisy.error < 0.03
    # Without noise, what was guessed at first fades, and other sizes do not count as noise.
    assert learned([(10, 1.0)] * 40).error < 0.005
    assert learned([(10 + step % 2, 1.0 + step % 2) for step in range(40)]).error < 0.02


def test_state_goes_through_json():
    model = learned([(b, 2.0 + 0.1 * b) for b in (10, 10, 30, 20)])
    again = SpeedModel()
    again.load(json.loads(json.dumps(model.state())))
    assert again.state() == model.state()
    assert (again.line, again.error) == (model.line, model.error)
    model.learn(10, 3.1)
    again.learn(10, 3.1)
    assert again.line == model.line


@pytest.mark.parametrize(
    "change", [{"sums": [1.0]}, {"sums": [float("nan")] * 5}, {"last": []}, {"seen": None}]
)
def test_another_state_changes_nothing(change):
    model = learned([(10, 1.0)] * 5)
    before = model.state()
    with pytest.raises(ConfigError):
        model.load({**before, **change})
    with pytest.raises(ConfigError):
        model.load({})
    assert model.state() == before
