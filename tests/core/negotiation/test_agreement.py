"""Whether ranks mean the same, and the words when they do not."""

import msgspec
import pytest

from bireme.core.negotiation.agreement import describe_ranks, disagreement, objection, sizes_of
from bireme.core.negotiation.messages import Kind, Request

BASE = Request("a", Kind.ALLREDUCE, "float32", (2, 3), op=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": Kind.ALLGATHER}, "operations"),
        ({"dtype": "int32"}, "dtypes"),
        ({"device": "cuda"}, "devices"),
        ({"shape": (2,)}, "shapes"),
        ({"op": 3}, "reductions"),
        ({"prescale": 0.5}, "prescale"),
        ({"postscale": 0.5}, "postscale"),
        ({"root": 1}, "root"),
        ({"group": "g", "group_size": 2}, "groups"),
        ({"numbers": (1,)}, "process sets"),
    ],
)
def test_each_aspect_is_compared(change, words):
    assert disagreement({0: BASE, 1: BASE}) is None
    text = disagreement({0: BASE, 1: msgspec.structs.replace(BASE, **change), 2: BASE})
    assert text.startswith("a: the ranks' ")
    assert words in text
    assert "ranks 0, 2 have" in text


def test_rows_may_differ_where_each_rank_has_its_own():
    gathers = {r: Request("g", Kind.ALLGATHER, "float32", (r, 3)) for r in range(2)}
    assert disagreement(gathers) is None
    assert sizes_of((0, 1), gathers) == (0, 1)
    exchanges = {
        r: Request("t", Kind.ALLTOALL, "float32", (5, 3), numbers=(r, 2)) for r in range(2)
    }
    assert disagreement(exchanges) is None
    assert sizes_of((0, 1), exchanges) == (0, 2, 1, 2)
    assert sizes_of((0,), {0: BASE}) == ()


def test_ranks_in_words():
    assert describe_ranks([5, 3, 4, 9, 0, 1]) == "ranks 0, 1, 3-5, 9"


def test_an_allreduce_and_control_go_on_when_ranks_have_joined():
    gather = Request("g", Kind.ALLGATHER, "float32", (2,))
    assert "not supported with Join" in objection({0: gather}, [1])
    assert objection({0: gather}, []) is None
    assert objection({0: Request("r", Kind.ALLREDUCE, "float32", (2,))}, [1]) is None
    assert objection({0: Request("b", Kind.BARRIER)}, [1]) is None
