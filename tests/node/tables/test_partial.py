import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.node.tables.samples import contribution, filled

from bireme.node.tables.index import RowIndex
from bireme.node.tables.partial import TablePartial

IDS = st.lists(st.integers(-6, 6), max_size=8)


def partial(ids, rows, weight=1.0):
    entry, payload, offset = contribution(ids, rows)
    return TablePartial.of(entry, payload, offset, weight, rows.shape[1], rows.dtype)


def shown(part):
    return {row: each.tolist() for row, each in zip(part.ids.tolist(), part.rows, strict=True)}


@settings(max_examples=60)
@given(st.tuples(IDS, IDS, IDS))
def test_sums_are_those_of_dictionaries_and_pairs_commute_bit_for_bit(batches):
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(len(ids), 2, generator=generator) for ids in batches]
    expected = {}
    for ids, rows in zip(batches, made, strict=True):
        for row, each in zip(ids, rows.double(), strict=True):
            expected[row] = expected.get(row, 0) + each
    pairs = zip(batches, made, strict=True)
    orders = [
        [partial(ids, rows) for ids, rows in order] for order in itertools.permutations(pairs)
    ]
    totals = [one.plus(two).plus(three) for one, two, three in orders]
    for total in totals:
        assert sorted(total.ids.tolist()) == sorted(expected)
        for row, each in zip(total.ids.tolist(), total.rows, strict=True):
            torch.testing.assert_close(each.double(), expected[row], rtol=1e-5, atol=1e-5)
    # Orders 0 and 2 add the same two first, the other way round.
    assert shown(totals[0]) == shown(totals[2])


def test_weights_and_scales():
    entry, payload, offset = filled([4, 5], 2.0)
    total = TablePartial.of(entry, payload, offset, 3.0, 2, torch.float32)
    total.scale(1.0, 4.0)
    assert shown(total) == {4: [1.5, 1.5], 5: [1.5, 1.5]}


def test_a_payload_is_not_looked_at_afterwards():
    rows = torch.ones(1, 2)
    entry, payload, offset = contribution([4], rows)
    memory = bytearray(payload)
    total = TablePartial.of(entry, memoryview(memory), offset, 1.0, 2, torch.float32)
    memory[:] = bytes(len(memory))
    assert shown(total) == {4: [1, 1]}


def test_new_ids():
    index = RowIndex()
    index.add(partial([1, 2], torch.zeros(2, 2)).ids)
    assert partial([2, 3], torch.zeros(2, 2)).new_ids(index).tolist() == [3]
