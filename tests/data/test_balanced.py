import json
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.data import BalancedBatchSampler
from bireme.data.order import epoch_order
from bireme.errors import ConfigError, StateError


class Crew:
    """The samplers of all workers, each fed as its trainer would, and what they handed out."""

    def __init__(self, n, batch_size, seconds, **options):
        self.seconds = seconds
        self.samplers = {
            part: BalancedBatchSampler(n, batch_size, len(seconds), part, **options)
            for part in range(len(seconds))
        }
        for sampler in self.samplers.values():
            sampler.connect()
        self.ahead = options.get("lookahead", 0)
        self.passes, self.queues = {}, {}

    def epoch(self, epoch, deaths=None, stop=None):
        """Go through an epoch; return the portions of each step as lists by part.

        ``deaths`` says who dies in which step, with its batch in hand.
        """
        for part, sampler in self.samplers.items():
            sampler.set_epoch(epoch)
            self.passes[part], self.queues[part] = iter(sampler), []
        steps = []
        while stop is None or len(steps) < stop:
            for part, handed in self.passes.items():
                while len(self.queues[part]) <= self.ahead:
                    found = next(handed, None)
                    if found is None:
                        break
                    self.queues[part].append(found)
            if not any(self.queues.values()):
                return steps
            dying = (deaths or {}).get(len(steps))
            if dying is not None:
                for held in (self.samplers, self.passes, self.queues):
                    del held[dying]
            steps.append({part: queue.pop(0) for part, queue in self.queues.items()})
            self.exchange(steps[-1])
        return steps

    def exchange(self, portions):
        said = [
            sampler.word(self.seconds[part] * len(portions[part]))
            for part, sampler in self.samplers.items()
        ]
        factor = len(self.seconds) / len(said)
        total = [factor * sum(column) for column in zip(*said, strict=True)]
        for sampler in self.samplers.values():
            sampler.take(total)


def flat(steps):
    return [index for step in steps for part in sorted(step) for index in step[part]]


def once(steps):
    """As flat, with a batch that was too small for all, and so given to all, taken once."""
    shared = [set(map(tuple, step.values())) for step in steps]
    return flat([dict(enumerate(sorted(portions))) for portions in shared])


def torch_batches(n, batch_size, seed, epoch):
    order = epoch_order(n, seed, epoch, shuffle=True).tolist()
    return [order[start : start + batch_size] for start in range(0, n, batch_size)]


@settings(deadline=None)
@given(
    n=st.integers(1, 200),
    batch_size=st.integers(1, 40),
    speeds=st.lists(st.floats(0.1, 10), min_size=1, max_size=5),
    epochs=st.integers(1, 3),
    lookahead=st.integers(0, 3),
)
def test_batches_are_those_of_one_process_at_any_portions(n, batch_size, speeds, epochs, lookahead):
    batch_size = max(batch_size, len(speeds))
    crew = Crew(n, batch_size, speeds, seed=5, lookahead=lookahead)
    for epoch in range(epochs):
        steps = crew.epoch(epoch)
        expected = torch_batches(n, batch_size, 5, epoch)
        assert len(steps) == len(expected) == len(crew.samplers[0])
        for step, batch in zip(steps, expected, strict=True):
            if len(batch) < len(speeds):
                assert all(portion == batch for portion in step.values())
            else:
                assert flat([step]) == batch
                assert all(step.values())


def test_portions_follow_speeds_within_an_epoch():
    crew = Crew(2000, 40, [1.0, 3.0])
    steps = crew.epoch(0)
    assert [len(steps[0][part]) for part in (0, 1)] == [20, 20]
    assert [len(steps[-1][part]) for part in (0, 1)] == [30, 10]
    assert sorted(flat(steps)) == list(range(2000))
    assert crew.samplers[0].sizes == (30, 10)


@settings(deadline=None)
@given(
    n=st.integers(40, 200),
    deaths=st.dictionaries(st.integers(0, 12), st.sampled_from([1, 2, 3]), max_size=3),
    lookahead=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_nothing_is_lost_or_used_twice_when_workers_die(n, deaths, lookahead, seed):
    who, unique = set(), {}
    for step, part in deaths.items():
        if part not in who:
            unique[step] = part
            who.add(part)
    crew = Crew(n, 12, [1.0, 2.0, 0.5, 1.0], seed=seed, lookahead=lookahead)
    used = once(crew.epoch(0, unique))
    left = crew.samplers[0].state_dict()["again"]
    assert sorted([*used, *left]) == list(range(n))
    assert lookahead or not left
    # What was on its way already comes in the next epoch.
    assert sorted(once(crew.epoch(1))) == sorted([*range(n), *left])


def test_the_portion_of_a_dead_worker_comes_again_at_the_end():
    crew = Crew(60, 12, [1.0, 1.0, 1.0], work_load_list=None, shuffle=False)
    steps = crew.epoch(0, {1: 2})
    assert steps[1] == {0: [12, 13, 14, 15], 1: [16, 17, 18, 19]}
    assert steps[2] == {0: [24, 25, 26, 27], 1: [28, 29, 30, 31]}
    assert steps[3] == {0: [36, 37, 38, 39, 40, 41], 1: [42, 43, 44, 45, 46, 47]}
    assert steps[-1] == {0: [20, 21, 22, 23], 1: [32, 33, 34, 35]}
    assert sorted(flat(steps)) == list(range(60))


def test_drop_last_leaves_the_smaller_batch_out():
    sampler = BalancedBatchSampler(10, 4, drop_last=True)
    assert [len(batch) for batch in sampler] == [4, 4]
    assert len(sampler) == 2
    with pytest.raises(ConfigError, match="drop_last leaves nothing of 3"):
        BalancedBatchSampler(3, 4, drop_last=True)


def test_fixed_portions_need_no_trainer_and_auto_does():
    fixed = BalancedBatchSampler(40, 8, 2, 1, work_load_list=[3, 1])
    assert [len(batch) for batch in fixed] == [2] * 5
    with pytest.raises(StateError, match=r"Call trainer.balance\(sampler\)"):
        list(BalancedBatchSampler(40, 8, 2, 1))
    # A process alone has nobody to agree with.
    assert len(list(BalancedBatchSampler(40, 8))) == 5


def test_a_loader_that_fetches_too_far_ahead():
    sampler = BalancedBatchSampler(40, 8, 2, 1, lookahead=1)
    sampler.connect()
    batches = iter(sampler)
    next(batches), next(batches)
    with pytest.raises(StateError, match="batch 2 was asked for when 0 steps were done"):
        next(batches)


def test_only_the_latest_pass_counts():
    sampler = BalancedBatchSampler(12, 4, shuffle=False)
    stale = iter(sampler)
    next(stale)
    assert list(sampler) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert list(stale) == []


def test_without_set_epoch_the_order_repeats():
    sampler = BalancedBatchSampler(12, 4)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


@pytest.mark.parametrize("at", [0, 1, 7, 24, 25])
def test_resuming_goes_on_with_the_same_batches_and_portions(at):
    def crew():
        return Crew(500, 20, [1.0, 3.0], seed=2)

    one = crew()
    one.epoch(0)
    before = one.epoch(1, stop=at)
    state = json.loads(json.dumps(one.samplers[1].state_dict()))
    assert one.samplers[0].state_dict() == one.samplers[1].state_dict()
    two = crew()
    for sampler in two.samplers.values():
        sampler.load_state_dict(state)
        assert sampler.epoch == 1
        assert len(sampler) == 25 - at
        assert sampler.sizes == (15, 5)
    after = two.epoch(1)
    assert flat(before + after) == epoch_order(500, 2, 1, shuffle=True).tolist()
    assert all(len(step[0]) == 15 for step in after)
    assert len(two.epoch(2)) == 25


def test_resuming_with_another_number_of_workers():
    one = Crew(500, 20, [1.0, 3.0], seed=2)
    before = one.epoch(0, stop=9)
    three = Crew(500, 20, [1.0, 1.0, 1.0], seed=2)
    for sampler in three.samplers.values():
        sampler.load_state_dict(one.samplers[0].state_dict())
        assert sampler.sizes == (7, 7, 6)
    assert sorted(flat(before + three.epoch(0))) == list(range(500))


def test_resuming_after_a_death_keeps_what_was_lost():
    one = Crew(100, 10, [1.0, 1.0], seed=2)
    before = one.epoch(0, {3: 1}, stop=6)
    two = Crew(100, 10, [1.0, 1.0], seed=2)
    for sampler in two.samplers.values():
        sampler.load_state_dict(one.samplers[0].state_dict())
    assert sorted(flat(before + two.epoch(0))) == list(range(100))


def test_saying_what_was_consumed_without_a_trainer():
    parts = [BalancedBatchSampler(45, 10, 2, part, work_load_list=[4, 1]) for part in range(2)]
    used = []
    for part in parts:
        batches = iter(part)
        handed = [next(batches) for _ in range(3)]
        used += handed[0] + handed[1]
        with pytest.raises(ConfigError, match="has handed out only 30 samples"):
            part.state_dict(consumed=4)
    state = parts[0].state_dict(consumed=2)
    for part in parts:
        part.load_state_dict(state)
        used += [index for batch in part for index in batch]
    assert sorted(used) == list(range(45))
    parts[0].connect()
    with pytest.raises(ConfigError, match="leave out consumed"):
        parts[0].state_dict(consumed=0)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 41},
        {"seed": 1},
        {"batch_size": 9},
        {"shuffle": False},
        {"drop_last": True},
        {"used": 41},
        {"extra": [40]},
        {"again": [-1]},
        {"epoch": -1},
        {"plan": {}},
        {"more": 1},
    ],
)
def test_a_state_that_is_not_this_samplers_changes_nothing(change):
    sampler = BalancedBatchSampler(40, 8, 2, 0, work_load_list=[3, 1])
    next(iter(sampler))
    before = sampler.state_dict()
    with pytest.raises(ConfigError):
        sampler.load_state_dict({**before, **change})
    assert sampler.state_dict() == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n": 0}, "n "),
        ({"batch_size": 1}, "no 1 samples for each of 2"),
        ({"part_index": 2}, "part_index"),
        ({"work_load_list": [1, 2, 3]}, "3 numbers for 2 workers"),
        ({"work_load_list": "quick"}, "'auto'"),
        ({"minimum": 5}, "no 5 samples for each of 2"),
        ({"maximum": 3}, "no place for a batch of 8"),
        ({"maximum": [3, 3, 3]}, "3 numbers for 2 workers"),
        ({"lookahead": -1}, "lookahead"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_arguments(arguments, text):
    plain = {"n": 40, "batch_size": 8, "num_parts": 2, "part_index": 0}
    with pytest.raises(ConfigError, match=text):
        BalancedBatchSampler(**{**plain, **arguments})


def test_maxima_hold_also_when_a_worker_is_gone():
    crew = Crew(200, 10, [1.0, 9.0, 9.0], maximum=4)
    assert {part: len(each) for part, each in crew.epoch(0)[-1].items()} == {0: 4, 1: 3, 2: 3}
    steps = crew.epoch(1, {0: 2})
    assert {part: len(each) for part, each in steps[5].items()} == {0: 4, 1: 4}
    assert sorted(flat(steps)) == list(range(200))


def test_workers_at_different_epochs_hear_of_it():
    crew = Crew(40, 8, [1.0, 1.0])
    crew.epoch(0)
    for part, sampler in crew.samplers.items():
        sampler.set_epoch(part)
        crew.passes[part] = iter(sampler)
    with pytest.raises(StateError, match="call set_epoch on all"):
        crew.exchange({part: next(handed) for part, handed in crew.passes.items()})


def test_skipped_steps_are_counted():
    draws = random.Random(0)
    crew = Crew(400, 10, [1.0, 2.0])
    for part, sampler in crew.samplers.items():
        crew.passes[part] = iter(sampler)
    used = []
    while True:
        portions = {part: next(handed, None) for part, handed in crew.passes.items()}
        if None in portions.values():
            break
        used += flat([portions])
        if draws.random() < 0.3:
            for sampler in crew.samplers.values():
                sampler.skip()
        else:
            crew.exchange(portions)
    assert sorted(used) == list(range(400))
    assert crew.samplers[0].sizes == (7, 3)


def test_torch_is_not_imported():
    code = "import sys, bireme.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
