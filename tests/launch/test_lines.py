"""Streams become lines, however they arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.launch.lines import LineBuffer


def lines_of(*pieces):
    buffer = LineBuffer()
    return [line for piece in pieces for line in buffer.feed(piece)] + buffer.finish()


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"))), st.data())
def test_the_cut_between_reads_does_not_matter(texts, data):
    stream = "".join(text + "\n" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert lines_of(*pieces) == texts


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\r\n", b"b\r\n"], ["a", "b"]),
        ([b"a\r", b"\nb"], ["a", "b"]),
        ([b" 10%\r 20%\r", b"100%\n"], ["100%"]),
        ([b" 10%\r", b" 20%\r"], [" 20%"]),
        ([b"\n\n"], ["", ""]),
        ([b"\xff\xfe\n"], ["\ufffd\ufffd"]),
        ([b"no end"], ["no end"]),
        ([], []),
    ],
)
def test_cases(pieces, expected):
    assert lines_of(*pieces) == expected


def test_a_progress_bar_takes_no_memory():
    buffer = LineBuffer()
    for step in range(100_000):
        assert buffer.feed(b"\r%9d" % step) == []
    assert len(buffer._rest) < 100
    assert buffer.finish() == ["    99999"]


def test_an_endless_line_comes_in_pieces():
    buffer = LineBuffer()
    pieces = [line for _ in range(10) for line in buffer.feed(b"x" * 30_000)] + buffer.finish()
    assert "".join(pieces) == "x" * 300_000
    assert max(map(len, pieces)) < 100_000
