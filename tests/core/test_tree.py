import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.tree import Tree
from bireme.errors import ConfigError
from bireme.sim.training import canonical_sum


def add_up(tree, order, parts, partials=None):
    partials = {} if partials is None else partials
    for shard in order:
        node = tree.node(shard, shard + 1)
        node, total = tree.rise(partials, node, parts[shard], lambda a, b: a + b)
        partials[node] = total
    return partials


def numbers(seed, count):
    random = Random(seed)
    return [random.uniform(-1, 1) * 10.0 ** random.randint(-9, 9) for _ in range(count)]


@given(st.integers(1, 40), st.integers(0, 1000), st.randoms(use_true_random=False))
def test_the_sum_does_not_depend_on_the_order_of_arrival(num_shards, seed, random):
    parts = numbers(seed, num_shards)
    order = list(range(num_shards))
    random.shuffle(order)
    tree = Tree(num_shards)
    partials = add_up(tree, order, parts)
    assert len(partials) == 1
    (wanted,) = canonical_sum(num_shards, {i: [x] for i, x in enumerate(parts)})
    assert tree.total(partials, lambda a, b: a + b) == wanted
    assert partials == {}


def test_the_order_would_show():
    parts = numbers(3, 8)
    sums = {sum(parts[i] for i in order) for order in itertools.permutations(range(8))}
    assert len(sums) > 1


@given(st.integers(1, 20), st.integers(0, 1000), st.data())
def test_the_sum_of_those_who_are_left_has_one_order_too(num_shards, seed, data):
    parts = numbers(seed, num_shards)
    absent = data.draw(st.sets(st.integers(0, num_shards - 1), max_size=num_shards - 1))
    order = data.draw(st.permutations([i for i in range(num_shards) if i not in absent]))
    when = data.draw(st.integers(0, len(order)))
    tree = Tree(num_shards)
    partials = add_up(tree, order[:when], parts)
    tree.set_absent(absent)
    tree.settle(partials, lambda a, b: a + b)
    add_up(tree, order[when:], parts, partials)
    assert len(partials) == 1
    (wanted,) = canonical_sum(num_shards, {i: [parts[i]] for i in order})
    assert tree.total(partials, lambda a, b: a + b) == wanted


def test_a_contribution_that_came_before_its_worker_died_stays_in_the_sum():
    tree, parts = Tree(4), numbers(1, 4)
    partials = add_up(tree, [1, 3], parts)
    tree.set_absent([1, 2])
    tree.settle(partials, lambda a, b: a + b)
    add_up(tree, [0], parts, partials)
    assert tree.total(partials, lambda a, b: a + b) == (parts[0] + parts[1]) + parts[3]


def test_no_more_partial_sums_are_held_than_cannot_be_combined():
    tree, parts = Tree(8), numbers(2, 8)
    partials = {}
    most = 0
    for shard in range(8):
        add_up(tree, [shard], parts, partials)
        most = max(most, len(partials))
    assert most == 3


def test_aligned_spans_are_subtrees_and_others_are_refused():
    tree = Tree(8)
    assert tree.node(0, 8) == 1
    assert tree.node(2, 4) == 5
    for first, end in ((1, 3), (0, 3), (3, 3), (-1, 1), (7, 9)):
        with pytest.raises(ConfigError, match="subtree"):
            tree.node(first, end)
    assert Tree(6).node(4, 6) == 6


@given(st.permutations(range(6)), st.integers(0, 1000), st.integers(0, 6))
def test_a_shard_that_comes_back_in_an_open_round_finds_its_place(order, seed, when):
    tree, parts = Tree(6), numbers(seed, 6)
    tree.set_absent([], for_now=[1, 4])
    partials = add_up(tree, [shard for shard in order[:when] if shard not in (1, 4)], parts)
    tree.settle(partials, lambda a, b: a + b)
    tree.set_absent([])
    added = {shard for shard in order[:when] if shard not in (1, 4)}
    add_up(tree, [shard for shard in order if shard not in added], parts, partials)
    (wanted,) = canonical_sum(6, {i: [x] for i, x in enumerate(parts)})
    assert tree.total(partials, lambda a, b: a + b) == wanted


def test_a_round_without_those_who_are_away_is_summed_in_the_canonical_order_too():
    tree, parts = Tree(6), numbers(5, 6)
    tree.set_absent([0], for_now=[4, 2])
    partials = add_up(tree, [5, 3, 1], parts)
    (wanted,) = canonical_sum(6, {i: [parts[i]] for i in (1, 3, 5)})
    assert tree.total(partials, lambda a, b: a + b) == wanted
    assert partials == {}


def test_a_batch_needs_a_shard():
    with pytest.raises(ConfigError, match="at least one"):
        Tree(0)
