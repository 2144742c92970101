from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gathering import Bundle, is_plain
from bireme.core.tree import Tree
from bireme.sim.relaying import FloatSums
from bireme.sim.training import canonical_sum
from bireme.sim.values import pack, unpack
from bireme.types.choices import Layout
from bireme.types.dtypes import DType
from bireme.types.shards import span_of
from bireme.wire.messages import Handover, PushEntry

ENTRIES = (PushEntry(3, 0, 0, 8), PushEntry(4, 1, 2, 8))


def handover(rank, *, dtype=DType.FLOAT64, weight=1.0, entries=ENTRIES, want_value=True):
    return Handover(10 + rank, 1, 2, dtype, rank, weight, False, want_value, 7, rank, entries)


class Halves(FloatSums):
    """Sums that are twice as large as what they are made of."""

    def sum_itemsize(self, dtype):
        return 2 * dtype.itemsize


def gathered(pushes, num_workers, sums=None):
    first = next(iter(pushes))[0]
    bundle = Bundle(first, 0.0, Tree(num_workers), sums or FloatSums())
    spans = {}
    for message, payload in pushes:
        span = spans[message.rank] = span_of(message.rank, num_workers, num_workers)
        plain = is_plain(message.entries)
        bundle.take(20 + message.rank, message, span, payload, plain=plain)
    return bundle, [*bundle.close(0, 5, spans, count(100))]


def spans_of(pieces):
    return [(piece.message.first_shard, piece.message.end_shard) for piece in pieces]


@pytest.mark.parametrize(
    ("ranks", "num_workers", "spans"),
    [
        ((0, 1), 4, [(0, 2)]),
        ((0, 1, 2, 3), 8, [(0, 4)]),
        ((4, 5, 6), 8, [(4, 6), (6, 7)]),
        ((3, 4, 5), 6, [(3, 4), (4, 6)]),
        ((1, 2), 4, [(1, 2), (2, 3)]),
        ((2, 3, 4), 5, [(2, 4), (4, 5)]),
        ((0,), 1, [(0, 1)]),
    ],
)
def test_neighbours_in_the_tree_are_added_up(ranks, num_workers, spans):
    _, pieces = gathered([(handover(rank), pack([1.0, 2.0])) for rank in ranks], num_workers)
    assert sorted(spans_of(pieces)) == sorted(spans)
    assert [piece.message.want_value for piece in pieces] == [False] * (len(spans) - 1) + [True]
    for piece in pieces:
        width = piece.message.end_shard - piece.message.first_shard
        assert unpack(piece.handle) == [float(width), 2.0 * width]
        assert len(piece.message.weights) == width


@given(st.permutations(range(4)), st.lists(st.floats(-1e9, 1e9), min_size=8, max_size=8))
def test_bits_do_not_depend_on_the_order_of_arrival(order, numbers):
    parts = {rank: numbers[2 * rank : 2 * rank + 2] for rank in range(4)}
    _, (piece,) = gathered([(handover(rank), pack(parts[rank])) for rank in order], 4)
    assert unpack(piece.handle) == canonical_sum(4, parts)


def test_values_are_weighed_once():
    pushes = [(handover(rank, weight=0.5 + rank), pack([2.0, 4.0])) for rank in range(2)]
    _, (piece,) = gathered(pushes, 2)
    assert unpack(piece.handle) == [4.0, 8.0]
    assert (piece.message.weighed, piece.message.weights) == (True, (0.5, 1.5))


def test_what_cannot_be_added_goes_as_it_came():
    encoded = (PushEntry(3, 0, 0, 4, "2bit:0.5"), PushEntry(4, 1, 2, 4, "2bit:0.5"))
    pushes = [
        (handover(0, entries=encoded, weight=0.5), b"abcdefgh"),
        (handover(1), pack([1.0, 2.0])),
        (handover(2, dtype=None), pack([3.0, 4.0])),
    ]
    bundle, pieces = gathered(pushes, 4)
    found = {piece.message.first_shard: piece for piece in pieces}
    assert found[0].message.entries == encoded
    assert (found[0].handle, found[0].message.weights, found[0].message.weighed) == (
        b"abcdefgh",
        (0.5,),
        False,
    )
    assert found[1].message.entries == ENTRIES
    assert len(list(bundle.handles())) == 3


def test_sums_of_half_types_travel_in_the_type_of_the_sum():
    _, (piece,) = gathered([(handover(rank), pack([1.0, 2.0])) for rank in range(2)], 2, Halves())
    assert [(entry.encoding, entry.payload_bytes) for entry in piece.message.entries] == [
        ("sum", 16),
        ("sum", 16),
    ]
    assert [entry.lead for entry in piece.message.entries] == [0, 2]


def test_an_answer_may_come_in_parts():
    bundle, _ = gathered([(handover(0), pack([1.0, 2.0]))], 1)
    assert bundle.waits(3, 0)
    assert not bundle.answered([(3, 0)])
    assert not bundle.waits(3, 0)
    assert not bundle.answered([(3, 0)])
    assert bundle.answered([(4, 1)])
    whole, _ = gathered([(handover(0), pack([1.0, 2.0]))], 1)
    assert whole.answered([(4, 1), (3, 0)])


def test_plain_entries():
    assert is_plain(ENTRIES)
    assert not is_plain((PushEntry(3, 0, 0, 24, layout=Layout.ROWS, num_rows=1),))
    assert not is_plain((*ENTRIES, PushEntry(5, 0, 0, 4, "fp16")))
