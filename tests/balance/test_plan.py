"""Plans of whole jobs under virtual time: workers hear sums of words, and nothing else."""

import itertools
import random

import pytest

from bireme.balance.choosing import chooser
from bireme.balance.plan import Plan
from bireme.balance.portions import Limits, portions
from bireme.errors import StateError

BATCH = 240


def make(loads, num_workers, part, *, batch=BATCH, lookahead=0, **limits):
    bounds = Limits(batch, limits.get("minimum", 1), limits.get("maximum", (batch,) * num_workers))
    return Plan(chooser(loads, bounds), bounds, part, lookahead)


class Team:
    """The plans of all workers, and what a synchronous store does with their words."""

    def __init__(self, seconds, loads="auto", **options):
        self.seconds = dict(enumerate(seconds))
        self.size, self.loads, self.options = len(seconds), loads, options
        self.plans = {part: make(loads, self.size, part, **options) for part in self.seconds}
        self.asked = {}
        self.durations, self.history, self.last = [], [], None

    def step(self, factor=1.0):
        """Let those who are alive do a step; return its portions, the same to all of them."""
        done = next(iter(self.plans.values())).done
        for plan in self.plans.values():
            # As a loader does that fetches ahead.
            for ahead in range(done, done + self.options.get("lookahead", 0) + 1):
                sizes = plan.cut(ahead, plan.room(ahead))
                assert self.asked.setdefault(ahead, sizes) == sizes
        sizes = self.asked[done]
        times = {part: self.seconds[part](sizes[part]) for part in self.plans}
        self.durations.append(max(times.values()))
        said = [plan.word(times[part]) for part, plan in self.plans.items()]
        self.last = [factor * sum(column) for column in zip(*said, strict=True)]
        for plan in self.plans.values():
            plan.take(self.last, sizes)
        self.history.append(sizes)
        return sizes

    def run(self, count):
        for _ in range(count):
            sizes = self.step()
        return sizes

    def replace(self, part):
        """Start worker ``part`` again: it repeats all steps, and hears the newest sum each time."""
        done = next(iter(self.plans.values())).done
        plan = make(self.loads, self.size, part, **self.options)
        for step in range(done):
            sizes = plan.cut(step, plan.room(step))
            plan.word(9.9)
            plan.take(self.last, sizes)
        self.plans[part] = plan

    def ideal_s(self, line):
        """Return the duration of a step with the best portions for lines ``(a, c)``."""
        sizes = portions(BATCH, line, [1] * self.size, [BATCH] * self.size)
        return max(a + c * b for (a, c), b in zip(line, sizes, strict=True))


def linear(a, c, noise=None):
    if noise is None:
        return lambda b: a + c * b
    return lambda b: (a + c * b) * noise()


@pytest.mark.parametrize(
    "lines",
    [
        [(0.0, 1.0), (0.0, 2.0)],
        [(0.0, 1.0), (0.0, 4.0)],
        [(0.0, 1.0)] * 3 + [(0.0, 2.0)],
        [(0.0, 1.0), (0.0, 1.5), (0.0, 3.0), (0.0, 5.0)],
        [(20.0, 1.0), (20.0, 2.0)],
        [(60.0, 1.0), (30.0, 2.0)],
        [(0.0, 1.0), (50.0, 1.0)],
        [(100.0, 0.5), (5.0, 2.0), (40.0, 1.0)],
    ],
)
def test_steps_are_nearly_ideal_within_a_few_steps(lines):
    team = Team([linear(*line) for line in lines])
    team.run(16)
    assert team.durations[-1] <= 1.05 * team.ideal_s(lines)
    # And that is for good.
    sizes = team.history[-1]
    assert team.run(100) == sizes


def test_convergence_with_a_machine_at_half_speed_takes_seven_steps():
    team = Team([linear(0.0, 1.0), linear(0.0, 2.0)])
    team.run(7)
    assert team.history[:6] == [[120, 120]] * 6
    assert team.history[6] == [160, 80]


@pytest.mark.parametrize("lookahead", [0, 3])
def test_everyone_cuts_alike_and_batches_are_whole(lookahead):
    draws = random.Random(3)
    team = Team(
        [linear(1.0, 1.0 + part, lambda: draws.uniform(0.8, 1.2)) for part in range(5)],
        lookahead=lookahead,
    )
    team.run(80)
    assert all(sum(sizes) == BATCH for sizes in team.history)
    assert len({tuple(sizes) for sizes in team.history}) > 1


def test_noise_and_single_slow_steps_move_nothing():
    for seed in range(20):
        draws, calls = random.Random(seed), itertools.count()

        def noise(draws=draws, calls=calls):
            # Two slow steps in a row at most: three are a new speed.
            slow = next(calls) % 6 < 4 and draws.random() < 0.05
            return draws.gauss(1.0, 0.05) * (5.0 if slow else 1.0)

        team = Team([linear(0.0, 1.0, noise)] * 2)
        assert team.run(150) == [120, 120]


def test_a_change_of_speed_is_followed():
    team = Team([linear(0.0, 1.0)] * 2)
    assert team.run(20) == [120, 120]
    team.seconds[1] = linear(0.0, 3.0)
    team.run(8)
    assert team.durations[-1] <= 1.05 * team.ideal_s([(0.0, 1.0), (0.0, 3.0)])
    team.seconds[1] = linear(0.0, 1.0)
    team.run(12)
    assert team.durations[-1] <= 1.05 * team.ideal_s([(0.0, 1.0), (0.0, 1.0)])


def test_a_slow_drift_is_followed():
    team = Team([linear(0.0, 1.0)] * 2)
    for step in range(80):
        factor = 1 + step / 80
        team.seconds[1] = linear(0.0, factor)
        team.step()
        assert step < 20 or team.durations[-1] < 1.2 * team.ideal_s([(0.0, 1.0), (0.0, factor)])


def test_times_that_are_not_known_decide_nothing():
    team = Team([lambda b: 0.0, lambda b: 1.0 * b])
    assert team.run(30) == [120, 120]


def test_given_numbers_need_no_times():
    team = Team([linear(0.0, 1.0)] * 2, loads=[3, 1])
    assert team.run(30) == [180, 60]


def test_what_a_dead_worker_had_goes_to_the_others():
    team = Team([linear(0.0, 1.0), linear(0.0, 2.0), linear(0.0, 1.0)])
    before = team.run(20)
    assert before == [96, 48, 96]
    del team.plans[1]
    # Noticed in the first step, announced in the second; sums are scaled meanwhile.
    assert team.step(factor=1.5) == team.step(factor=1.5) == before
    assert team.step(factor=1.5) == [120, 0, 120]
    assert team.plans[0].alive == [True, False, True]
    team.seconds[0] = linear(0.0, 2.0)
    assert [team.step(factor=1.5) for _ in range(20)][-1] == [80, 0, 160]


@pytest.mark.parametrize("lookahead", [0, 2])
@pytest.mark.parametrize("when", [0, 1, 2, 5, 6, 7, 8, 9, 10, 15])
def test_a_replacement_learns_the_plan_in_time(when, lookahead):
    lines = [(0.0, 1.0), (0.0, 2.0), (0.0, 2.0)]
    team = Team([linear(*line) for line in lines], lookahead=lookahead)
    for _ in range(when):
        team.step()
    team.replace(2)
    # That all cut alike is checked in every step.
    begun = [team.step() for _ in range(5 + 2 * lookahead)]
    assert all(sum(sizes) == BATCH for sizes in begun)
    assert BATCH // 3 in [sizes[2] for sizes in begun]
    team.run(20)
    assert team.durations[-1] <= 1.05 * team.ideal_s(lines)


def test_a_replacement_that_is_replaced_and_two_at_once():
    lines = [(0.0, 1.0), (0.0, 2.0), (0.0, 2.0), (0.0, 1.0)]
    team = Team([linear(*line) for line in lines])
    for when in (9, 1, 2, 12, 1):
        team.run(when)
        team.replace(1)
        team.step()
        team.replace(1)
        team.replace(3)
    team.run(25)
    assert team.durations[-1] <= 1.05 * team.ideal_s(lines)


def test_given_numbers_come_back_with_a_replacement():
    team = Team([linear(0.0, 1.0)] * 3, loads=[1, 2, 3])
    team.run(4)
    team.replace(0)
    assert team.run(5) == [40, 80, 120]


def test_a_small_batch_is_cut_alike_or_given_to_all():
    plan = make([2, 1], 2, 0, batch=30)
    assert plan.cut(0, 30) == [20, 10]
    assert plan.cut(0, 8) == [5, 3]
    assert plan.cut(0, 2) == [1, 1]
    assert plan.cut(0, 1) == [1, 1]


def test_no_batch_is_cut_before_its_portions_are_agreed():
    plan = make("auto", 2, 0, lookahead=2)
    assert plan.room(2) == BATCH
    with pytest.raises(
        StateError, match=r"batch 3 was asked for when 0 steps were done.*lookahead"
    ):
        plan.room(3)
    with pytest.raises(StateError, match="batch 3"):
        plan.cut(3, 5)
    plan.skip()
    assert plan.room(3) == BATCH


def test_workers_that_are_out_of_step_or_disagree_hear_of_it():
    one, two = (make([2, 1], 2, part) for part in range(2))

    def total(*places):
        said = [plan.word(1.0, place) for plan, place in zip((one, two), places, strict=True)]
        return [sum(column) for column in zip(*said, strict=True)]

    for plan in (one, two):
        plan.take(total((0, 0), (0, 0)), [2, 1])
        one.done = two.done = 0
    one.done = two.done = 1
    words = total((0, 30), (0, 31))
    for plan in (one, two):
        with pytest.raises(StateError, match="workers disagree on shares or on the batch"):
            plan.take(words, [2, 1])
    two.skip()
    words = total((0, 30), (0, 30))
    with pytest.raises(StateError, match=r"count their steps differently: \{0: 1, 1: 2\}"):
        one.take(words, [2, 1])


def test_state_carries_portions_and_what_was_learned():
    team = Team([linear(0.0, 1.0), linear(0.0, 2.0)])
    team.run(12)
    state = team.plans[0].state()
    again = Team([linear(0.0, 1.0), linear(0.0, 2.0)])
    for plan in again.plans.values():
        plan.load(state)
    assert again.run(10) == [160, 80]
    assert again.history[0] == [160, 80]


def test_a_state_that_does_not_suit_leaves_neutral_portions():
    team = Team([linear(0.0, 1.0), linear(0.0, 2.0), linear(0.0, 2.0)])
    team.run(12)
    for other in (make("auto", 2, 0), make([3, 1], 2, 0)):
        before = other.sizes
        other.load(team.plans[0].state())
        assert other.sizes == before
    del team.plans[2]
    team.run(5)
    whole = make("auto", 3, 0)
    whole.load(team.plans[0].state())
    assert whole.sizes == (80, 80, 80)
