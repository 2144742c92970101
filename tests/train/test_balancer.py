import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.train.balancer import Balancer, shares_of


def run(balancer, seconds_of, num_steps, batch_size=256):
    """Feed the balancer times from a virtual clock; return the shares after each step."""
    history = []
    for _ in range(num_steps):
        sizes = balancer.sizes(batch_size)
        balancer.record(sizes, seconds_of(sizes))
        history.append(balancer.shares)
    return history


def steady(speeds, noise=0.0, seed=0, overhead_s=0.0):
    generator = random.Random(seed)

    def seconds(sizes):
        return [
            overhead_s + size / speed * math.exp(generator.gauss(0, noise))
            for size, speed in zip(sizes, speeds, strict=True)
        ]

    return seconds


def proportions(speeds):
    return [speed / sum(speeds) for speed in speeds]


def farthest(shares, speeds):
    """Return the greatest relative distance of a share from the speeds."""
    wanted = proportions(speeds)
    return max(abs(share - want) / want for share, want in zip(shares, wanted, strict=True))


@settings(deadline=None)
@given(st.lists(st.floats(10, 1000), min_size=1, max_size=6))
def test_shares_reach_the_speeds_after_the_first_steps(speeds):
    balancer = Balancer(len(speeds))
    history = run(balancer, steady(speeds), 8, batch_size=10_000)
    assert farthest(history[-1], speeds) < 0.05


def test_the_start_is_even_and_warmup_steps_do_not_count():
    balancer = Balancer(2, warmup_steps=3, window=1)
    assert balancer.shares == (0.5, 0.5)
    run(balancer, steady([1, 1000]), 3)
    assert balancer.speeds == (None, None)
    run(balancer, steady([300, 100]), 1)
    assert balancer.shares == pytest.approx((0.75, 0.25))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_shares_follow_noisy_speeds_within_the_tolerance_of_the_measured(seed):
    balancer = Balancer(3)
    seconds_of = steady([100, 200, 400], noise=0.05, seed=seed)
    for _ in range(60):
        run(balancer, seconds_of, 1)
        if None not in balancer.speeds and balancer.shares[0] != balancer.shares[2]:
            assert farthest(balancer.shares, balancer.speeds) <= 0.05 + 1e-9
    assert farthest(balancer.shares, [100, 200, 400]) < 0.2


def test_small_noise_moves_nothing_once_settled():
    balancer = Balancer(2)
    seconds_of = steady([300, 100], noise=0.02, seed=1)
    run(balancer, seconds_of, 50)
    assert len(set(run(balancer, seconds_of, 200))) == 1


def test_single_slow_steps_move_nothing():
    balancer = Balancer(2)
    run(balancer, steady([300, 100]), 20)
    settled = balancer.shares
    for _ in range(10):
        run(balancer, steady([3, 100]), 1)
        run(balancer, steady([300, 100]), 5)
    assert balancer.shares == settled


def test_a_change_of_speed_is_followed():
    balancer = Balancer(2)
    run(balancer, steady([100, 100]), 20)
    run(balancer, steady([300, 100]), 30)
    assert farthest(balancer.shares, [300, 100]) <= 0.05


@pytest.mark.parametrize("overhead_s", [0.001, 0.1, 1.0])
def test_shares_never_turn_back_with_a_fixed_cost_per_step(overhead_s):
    # A fixed cost makes speed depend on the share: the feedback in which shares could oscillate.
    balancer = Balancer(2)
    history = run(balancer, steady([300, 100], overhead_s=overhead_s), 300)
    first = [shares[0] for shares in history]
    changes = [b - a for a, b in itertools.pairwise(first) if a != b]
    assert all(change > 0 for change in changes)
    sizes = balancer.sizes(256)
    times = steady([300, 100], overhead_s=overhead_s)(sizes)
    assert min(times) / max(times) > 0.8 or min(sizes) == 1


def test_a_very_slow_context_stays_measurable_and_comes_back():
    balancer = Balancer(2)
    run(balancer, steady([1000, 0.01]), 20, batch_size=16)
    assert balancer.sizes(16) == [15, 1]
    run(balancer, steady([1000, 1000]), 60, batch_size=16)
    assert balancer.sizes(16) == [8, 8]


def test_a_context_without_samples_learns_nothing():
    balancer = Balancer(3, warmup_steps=0, window=1)
    balancer.record([1, 1, 0], [1.0, 1.0, 0.0])
    assert balancer.speeds == (1.0, 1.0, None)
    assert balancer.shares == pytest.approx((1 / 3, 1 / 3, 1 / 3))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_contexts": 0},
        {"num_contexts": 2, "window": 0},
        {"num_contexts": 2, "smoothing": 0},
        {"num_contexts": 2, "smoothing": 1.5},
        {"num_contexts": 2, "tolerance": 0},
        {"num_contexts": 2, "warmup_steps": -1},
        {"num_contexts": 2, "least_s": -1.0},
        {"num_contexts": 2, "least_s": math.inf},
    ],
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ConfigError):
        Balancer(**arguments)


def test_a_record_needs_one_entry_per_context():
    with pytest.raises(ConfigError, match="2 contexts, got 1 sizes"):
        Balancer(2).record([1], [1.0])


def hiccups(step_s, seed):
    """Equal contexts whose steps are far shorter than what else the machine does now and then."""
    generator = random.Random(seed)

    def seconds(sizes):
        return [step_s * size * math.exp(generator.gauss(0, 0.5)) for size in sizes]

    return seconds


@pytest.mark.parametrize("seed", range(8))
def test_the_noise_of_tiny_steps_moves_nothing_far(seed):
    history = run(Balancer(2), hiccups(20e-6, seed), 3000, batch_size=8)
    assert farthest(history[-1], [1, 1]) < 0.15
    assert max(farthest(shares, [1, 1]) for shares in history) < 0.2
    # Taken step by step, the same noise moves them much further.
    history = run(Balancer(2, least_s=0.0), hiccups(20e-6, seed), 3000, batch_size=8)
    assert max(farthest(shares, [1, 1]) for shares in history) > 0.2


def test_short_steps_are_added_up_until_they_make_a_measurement():
    balancer = Balancer(2, warmup_steps=0, window=1, least_s=0.01)
    for _ in range(9):
        balancer.record([3, 1], [0.001, 0.001])
    assert balancer.speeds == (None, None)
    for _ in range(2):
        balancer.record([3, 1], [0.001, 0.001])
    assert balancer.speeds == (pytest.approx(3000), pytest.approx(1000))
    assert balancer.shares == pytest.approx((0.75, 0.25))


def test_a_work_load_list_says_who_gets_how_much():
    assert shares_of(None, 2).sizes(9) == [5, 4]
    assert shares_of([3, 1], 2).sizes(8) == [6, 2]
    assert isinstance(shares_of("auto", 2), Balancer)


@pytest.mark.parametrize("work_load_list", ["even", 2, [1, 2, 3], [0, 0]])
def test_what_is_no_work_load_list_is_refused(work_load_list):
    with pytest.raises(ConfigError, match="work_load_list"):
        shares_of(work_load_list, 2)
