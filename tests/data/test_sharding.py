import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bireme.data import ShardSampler
from bireme.errors import ConfigError


def make(n, shares, **options):
    return [
        ShardSampler(n, len(shares), part, shares=shares, **options) for part in range(len(shares))
    ]


def take(iterator, count):
    return list(itertools.islice(iterator, count))


sizes = st.integers(1, 60)
shares_lists = st.lists(st.integers(1, 4), min_size=1, max_size=5) | st.integers(1, 7).map(
    lambda parts: [1] * parts
)


@given(n=sizes, shares=shares_lists, seed=st.integers(0, 2**64 - 1), shuffle=st.booleans())
def test_exact_cover(n, shares, seed, shuffle):
    parts = make(n, shares, seed=seed, shuffle=shuffle)
    indices = [list(part) for part in parts]
    assert sorted(itertools.chain(*indices)) == list(range(n))
    assert [len(part) for part in parts] == [len(part) for part in indices]
    assert parts[0].sizes == tuple(map(len, indices))
    if len(set(shares)) == 1:
        assert max(parts[0].sizes) - min(parts[0].sizes) <= 1


@given(n=sizes, shares=shares_lists, shuffle=st.booleans())
def test_drop_last_is_exactly_proportional_and_drops_the_end_of_the_order(n, shares, shuffle):
    cycle = sum(shares) // np.gcd.reduce(shares)
    assume(n >= cycle)
    parts = make(n, shares, shuffle=shuffle, drop_last=True)
    indices = [list(part) for part in parts]
    assert [len(part) * sum(shares) for part in indices] == [n // cycle * cycle * s for s in shares]
    order = list(ShardSampler(n, shuffle=shuffle))
    assert sorted(itertools.chain(*indices)) == sorted(order[: n // cycle * cycle])


def test_the_order_is_frozen():
    # Parts may run different versions of this package and of numpy: this must never change.
    sampler = ShardSampler(10, seed=7)
    first = list(sampler)
    sampler.set_epoch(1)
    assert first == [8, 4, 1, 6, 3, 2, 7, 5, 9, 0]
    assert list(sampler) == [3, 9, 1, 6, 2, 5, 4, 8, 0, 7]


def test_epochs_seeds_and_repeats():
    sampler = ShardSampler(50, 2, 1, seed=1)
    first, again = list(sampler), list(sampler)
    assert first == again
    sampler.set_epoch(1)
    second = list(sampler)
    assert sorted(second) != sorted(first)  # reshuffled across the parts
    assert list(ShardSampler(50, 2, 1, seed=2)) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(ShardSampler(5, shuffle=False)) == [0, 1, 2, 3, 4]


def test_permutations_are_uniform():
    counts = np.zeros((4, 4))
    for seed in range(2000):
        for place, index in enumerate(ShardSampler(4, seed=seed)):
            counts[place, index] += 1
    # Binomial with p = 1/4: standard deviation 19.4, so this is over five of them.
    assert np.abs(counts - 500).max() < 100


def test_more_parts_than_samples_leaves_some_empty():
    assert [len(ShardSampler(2, 4, part)) for part in range(4)] == [1, 1, 0, 0]
    assert list(ShardSampler(2, 4, 3)) == []
    with pytest.raises(ConfigError, match="drop_last leaves nothing of 2 samples for 4 parts"):
        ShardSampler(2, 4, 0, drop_last=True)


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((0,), {}, "n must be >= 1"),
        ((3.0,), {}, "n must be an integer, got 3.0"),
        (([1, 2],), {}, "n must be an integer"),
        ((5, 0), {}, "num_parts must be >= 1"),
        ((5, 2, 2), {}, "part_index must be >= 0 and < 2, got 2"),
        ((5, 2, -1), {}, "part_index"),
        ((5,), {"seed": -1}, "seed"),
        ((5,), {"seed": 2**64}, "seed"),
        ((5, 2), {"shares": [1]}, "num_parts is 2 but there are 1 shares"),
        ((5, 2), {"shares": [1, 0]}, "shares must be integers >= 1"),
    ],
)
def test_refuses_values_out_of_range(arguments, options, says):
    with pytest.raises(ConfigError, match=says):
        ShardSampler(*arguments, **options)


def test_takes_numpy_integers():
    assert len(ShardSampler(np.int64(5), np.int32(2), np.int32(0))) == 3


@given(n=sizes, shares=shares_lists, drop_last=st.booleans(), data=st.data())
def test_resuming_a_part_goes_on_exactly(n, shares, drop_last, data):
    assume(not drop_last or n >= sum(shares))
    part = data.draw(st.integers(0, len(shares) - 1))
    options = {"seed": 5, "drop_last": drop_last, "shares": shares}
    whole = ShardSampler(n, len(shares), part, **options)
    whole.set_epoch(3)
    expected = list(whole)
    used = data.draw(st.integers(0, len(expected)))
    take(iter(whole), used)
    state = json.loads(json.dumps(whole.state_dict()))
    other = ShardSampler(n, len(shares), part, **options)
    other.load_state_dict(state)
    other.set_epoch(3)  # what a training loop does first
    assert len(other) == len(expected) - used
    assert list(other) == expected[used:]
    assert list(other) == expected  # a further pass of the same epoch is a whole one
    other.set_epoch(4)
    whole.set_epoch(4)
    assert list(other) == list(whole)


def test_state_counts_what_was_handed_out_or_what_was_consumed():
    sampler = ShardSampler(20, 2, 0)
    expected = list(sampler)
    indices = iter(sampler)
    take(indices, 6)
    assert sampler.state_dict()["positions"] == [6, None]
    assert sampler.state_dict(consumed=4)["positions"] == [4, None]
    with pytest.raises(ConfigError, match=r"consumed is 7, .* only 6"):
        sampler.state_dict(consumed=7)
    with pytest.raises(ConfigError, match="consumed"):
        sampler.state_dict(consumed=-1)
    sampler.load_state_dict(sampler.state_dict(consumed=4))
    assert take(iter(sampler), 3) == expected[4:7]
    # consumed counts from the start of this pass, not of the epoch
    assert sampler.state_dict(consumed=2)["positions"] == [6, None]


def test_only_the_latest_pass_counts():
    sampler = ShardSampler(20)
    old = iter(sampler)
    take(old, 5)
    new = iter(sampler)
    take(new, 2)
    take(old, 5)
    assert sampler.state_dict()["positions"] == [2]
    sampler.set_epoch(1)
    take(new, 5)
    assert sampler.state_dict()["positions"] == [0]


@settings(max_examples=200)
@given(
    n=sizes,
    divisions=st.lists(shares_lists, min_size=2, max_size=4),
    in_step=st.booleans(),
    data=st.data(),
)
def test_another_number_of_parts_covers_exactly_the_rest(n, divisions, in_step, data):
    used, state = [], None
    for shares in divisions[:-1]:
        parts = make(n, shares, seed=9)
        for part in parts:
            if state is not None:
                part.load_state_dict(state)
        unit = np.gcd.reduce(shares)
        if in_step:
            turns = data.draw(st.integers(0, 8))
            counts = [turns * share // unit for share in shares]
        else:
            counts = [data.draw(st.integers(0, len(part))) for part in parts]
        for part, count in zip(parts, counts, strict=True):
            used += take(iter(part), count)
        states = [part.state_dict() for part in parts]
        longest = max(
            range(len(parts)), key=lambda part: -(-parts[0].sizes[part] * unit // shares[part])
        )
        state = states[longest] if in_step else ShardSampler.merge_states(states)
        state = json.loads(json.dumps(state))
    parts = make(n, divisions[-1], seed=9)
    rest = []
    for part in parts:
        part.load_state_dict(state)
        size = len(part)
        rest.append(list(part))
        assert len(rest[-1]) == size
    assert sorted(itertools.chain(used, *rest)) == list(range(n))


def test_rank_0_may_save_for_all():
    parts = make(11, [1, 1, 1])
    passes = [iter(part) for part in parts]
    used = [index for indices in passes for index in take(indices, 2)]
    state = parts[0].state_dict()
    again = make(11, [1, 1, 1])
    for part in again:
        part.load_state_dict(state)
    assert sorted(used + [index for part in again for index in part]) == list(range(11))


def test_a_part_that_ran_out_cannot_speak_for_longer_ones():
    parts = make(7, [1, 1])
    for part in parts:
        list(part)
    with pytest.raises(ConfigError, match="merge_states"):
        ShardSampler(7, 3, 0).load_state_dict(parts[1].state_dict())
    last = ShardSampler(7, 3, 0)
    last.load_state_dict(parts[0].state_dict())
    assert len(last) == 0
    assert list(last) == []
    last.set_epoch(1)
    assert len(last) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": 8}, "n=9, this sampler has n=8"),
        ({"seed": 1}, "seed=0, this sampler has seed=1"),
        ({"shuffle": False}, "shuffle=True, .* shuffle=False"),
        ({"drop_last": True}, "drop_last=False"),
    ],
)
def test_a_state_of_another_run_is_refused_and_changes_nothing(options, says):
    state = ShardSampler(9, 2, 0).state_dict()
    sampler = ShardSampler(**({"n": 9} | options), num_parts=2)
    before = list(sampler)
    take(iter(sampler), 2)
    kept = sampler.state_dict()
    with pytest.raises(ConfigError, match=says):
        sampler.load_state_dict(state)
    assert sampler.state_dict() == kept
    assert list(sampler) == before


def test_drop_last_after_a_change_of_parts():
    parts = make(10, [1, 1, 1], drop_last=True)
    used = [index for part in parts for index in take(iter(part), 1)]
    rest = make(10, [1, 1], drop_last=True)
    for part in rest:
        part.load_state_dict(parts[0].state_dict())
    indices = [list(part) for part in rest]
    assert [len(part) for part in indices] == [3, 3]  # seven are left
    assert len({*used, *indices[0], *indices[1]}) == 9


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_resume_through_a_data_loader_is_exact(num_workers):
    data = list(range(40))

    def loader(sampler):
        return torch.utils.data.DataLoader(
            data, batch_size=4, sampler=sampler, num_workers=num_workers
        )

    sampler = ShardSampler(40, 2, 0, seed=2)
    assert len(loader(sampler)) == 5
    expected = [index for batch in loader(sampler) for index in batch.tolist()]
    assert expected == list(ShardSampler(40, 2, 0, seed=2))
    seen = []
    for batch in loader(sampler):
        seen += batch.tolist()
        if len(seen) == 8:
            state = sampler.state_dict(consumed=len(seen))
            break
    assert sampler.state_dict()["positions"][0] == (8 if num_workers == 0 else 20)
    resumed = ShardSampler(40, 2, 0, seed=2)
    resumed.load_state_dict(state)
    assert len(loader(resumed)) == 3
    assert seen + [index for batch in loader(resumed) for index in batch.tolist()] == expected


def test_memory_is_taken_when_a_pass_runs_only():
    sampler = ShardSampler(10**15, 10**3, 5)
    assert len(sampler) == 10**12
    assert sampler.state_dict()["n"] == 10**15
