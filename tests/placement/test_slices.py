"""Cuts cover the value exactly, are small enough, and follow rows."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.placement import Span, cut


@st.composite
def cuts(draw):
    row_length = draw(st.integers(1, 300))
    return {
        "num_elements": draw(st.integers(0, 200)) * row_length,
        "itemsize": draw(st.sampled_from([1, 2, 4, 8])),
        "row_length": row_length,
        "slice_bytes": draw(st.integers(8, 20_000)),
        "whole_rows": draw(st.booleans()),
        "splittable": draw(st.booleans()),
        "num_servers": draw(st.integers(1, 9)),
    }


@given(cuts())
def test_the_value_is_covered_exactly(options):
    spans = cut(**options)
    assert spans[0].offset == 0
    for before, after in pairwise(spans):
        assert after.offset == before.offset + before.length
    assert spans[-1].offset + spans[-1].length == options["num_elements"]
    assert all(span.length > 0 for span in spans) or options["num_elements"] == 0
    assert cut(**options) == spans


@given(cuts())
def test_spans_are_small_enough_unless_told_otherwise(options):
    spans = cut(**options)
    row_bytes = options["row_length"] * options["itemsize"]
    if not options["splittable"]:
        assert len(spans) == 1
    elif options["whole_rows"]:
        most = max(options["slice_bytes"], row_bytes)
        assert all(span.length * options["itemsize"] <= most for span in spans)
    else:
        assert all(span.length * options["itemsize"] <= options["slice_bytes"] for span in spans)


@given(cuts())
def test_rows_that_fit_are_never_cut(options):
    fits = options["row_length"] * options["itemsize"] <= options["slice_bytes"]
    if fits or options["whole_rows"]:
        assert all(span.offset % options["row_length"] == 0 for span in cut(**options))


@given(cuts())
def test_spans_are_even_and_as_few_as_give_each_server_as_many(options):
    spans = cut(**options)
    row_bytes = options["row_length"] * options["itemsize"]
    if len(spans) > 1 and row_bytes <= options["slice_bytes"]:
        rows = [span.length // options["row_length"] for span in spans]
        assert max(rows) - min(rows) <= 1
        least = -(-sum(rows) // (options["slice_bytes"] // row_bytes))
        if least > options["num_servers"]:
            least = min(sum(rows), -(-least // options["num_servers"]) * options["num_servers"])
        assert len(spans) == least


def test_cuts_inside_a_row_are_aligned():
    spans = cut(10**6, 4, row_length=10**6, slice_bytes=1 << 20)
    assert [span.length for span in spans] == [250048, 249984, 249984, 249984]
    assert all(span.offset % 64 == 0 for span in spans)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_elements": 0, "itemsize": 4}, (Span(0, 0),)),
        ({"num_elements": 0, "itemsize": 4, "row_length": 7}, (Span(0, 0),)),
        ({"num_elements": 1, "itemsize": 8, "slice_bytes": 1}, (Span(0, 1),)),
        (
            {"num_elements": 3, "itemsize": 8, "slice_bytes": 1},
            (Span(0, 1), Span(1, 1), Span(2, 1)),
        ),
        ({"num_elements": 4, "itemsize": 4, "slice_bytes": 16}, (Span(0, 4),)),
        (
            {
                "num_elements": 6,
                "itemsize": 4,
                "row_length": 3,
                "slice_bytes": 8,
                "whole_rows": True,
            },
            (Span(0, 3), Span(3, 3)),
        ),
    ],
)
def test_edges(options, expected):
    assert cut(**options) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_elements": -1, "itemsize": 4}, "num_elements must be >= 0, got -1"),
        ({"num_elements": 1, "itemsize": 0}, "itemsize must be >= 1"),
        ({"num_elements": 1, "itemsize": 4, "row_length": 0}, "row_length must be >= 1"),
        ({"num_elements": 1, "itemsize": 4, "slice_bytes": 0}, "slice_bytes must be >= 1"),
        ({"num_elements": 10, "itemsize": 4, "row_length": 3}, "10 elements are no number of rows"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        cut(**options)
