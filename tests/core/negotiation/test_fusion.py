"""Buckets: what goes together, up to which size, in which order."""

import pytest

from bireme.core.negotiation.fusion import Planned, elements_of, fuse
from bireme.core.negotiation.messages import Kind, Request


def planned(name, dtype="float32", elements=4, kind=Kind.ALLREDUCE, **fields):
    request = Request(name, kind, dtype, (elements,), **fields)
    return Planned(request, num_elements=elements_of(request))


def names(buckets):
    return [[each.request.name for each in bucket.members] for bucket in buckets]


def test_likes_are_fused_past_others_and_in_the_order_of_their_firsts():
    operations = [
        planned("a"),
        planned("b", "float16"),
        planned("c"),
        planned("d", "float16"),
        planned("e", kind=Kind.ALLGATHER),
        planned("f", kind=Kind.ALLGATHER),
        planned("g"),
    ]
    buckets = fuse(operations, 1 << 20)
    assert names(buckets) == [["a", "c", "g"], ["b", "d"], ["e"], ["f"]]
    assert [bucket.num_elements for bucket in buckets] == [12, 8, 4, 4]


def test_a_bucket_that_is_full_is_closed():
    operations = [planned(name) for name in "abcd"] + [planned("big", elements=100), planned("e")]
    assert names(fuse(operations, 32)) == [["a", "b"], ["c", "d"], ["big"], ["e"]]


def test_nothing_is_fused_where_that_is_asked_for():
    assert names(fuse([planned("a"), planned("b")], 0)) == [["a"], ["b"]]


@pytest.mark.parametrize(
    "fields",
    [
        {"op": 3},
        {"prescale": 2.0},
        {"postscale": 2.0},
        {"process_set": 1},
        {"device": "cuda"},
        {"kind": Kind.BROADCAST, "root": 0},
    ],
)
def test_what_differs_is_not_fused(fields):
    assert len(fuse([planned("a"), planned("b", **fields)], 1 << 20)) == 2


def test_broadcasts_of_one_root_are_fused_and_adaptive_sums_are_not():
    roots = [planned(str(n), kind=Kind.BROADCAST, root=n // 2) for n in range(4)]
    assert names(fuse(roots, 1 << 20)) == [["0", "1"], ["2", "3"]]
    assert len(fuse([planned("a", op=2), planned("b", op=2)], 1 << 20)) == 2
