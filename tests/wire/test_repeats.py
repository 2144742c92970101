"""Heads that repeat: what is known again is what the codec would have said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.wire.codec import decode_head, encode
from bireme.wire.data import Push, PushEntry, Value, ValueEntry
from bireme.wire.repeats import Repeats, Stencil

NUMBERS = st.integers(0, 2**62)
SMALL = st.integers(0, 300)


@st.composite
def messages(draw):
    sizes = draw(st.lists(st.integers(1, 70_000), min_size=1, max_size=3))
    if draw(st.booleans()):
        entries = tuple(PushEntry(draw(SMALL), i, 0, size) for i, size in enumerate(sizes))
        first = draw(SMALL)
        return (
            Push(
                draw(NUMBERS),
                1 + draw(SMALL),
                draw(SMALL),
                first,
                first + 1 + draw(SMALL),
                draw(st.floats(0, 8)),
                draw(st.booleans()),
                draw(st.booleans()),
                draw(NUMBERS),
                draw(st.integers(-9, 9)),
                entries,
            ),
            sum(sizes),
        )
    values = tuple(ValueEntry(draw(SMALL), i, 0, size) for i, size in enumerate(sizes))
    return Value(draw(NUMBERS), 1 + draw(SMALL), draw(NUMBERS), values), sum(sizes)


def push(request=5, number=7, view=1, key=3, rank=0):
    entries = (PushEntry(key, 0, 0, 8),)
    return Push(request, view, rank, rank, rank + 1, 1.0, False, True, number, 0, entries)


def with_numbers(message, first, second):
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    fields["request"] = first
    fields["round" if isinstance(message, Push) else "version"] = second
    return type(message)(**fields)


@given(messages(), NUMBERS, NUMBERS)
def test_a_written_head_says_what_the_message_says(sample, first, second):
    message, size_bytes = sample
    stencil = Stencil(message, size_bytes)
    head = stencil.write(first, second)
    assert decode_head(head) == (with_numbers(message, first, second), size_bytes)
    assert stencil.read(head) == (first, second)


@given(messages(), NUMBERS, NUMBERS)
def test_what_was_learned_is_found_with_its_new_numbers(sample, first, second):
    message, size_bytes = sample
    stencil, repeats = Stencil(message, size_bytes), Repeats()
    head = stencil.write(
        message.request, getattr(message, "round", None) or getattr(message, "version", 0)
    )
    repeats.learn(head, decode_head(head)[0], size_bytes)
    found = repeats.find(stencil.write(first, second))
    assert found is not None
    assert with_numbers(*found) == with_numbers(message, first, second)


@given(messages(), messages())
def test_another_message_is_never_taken_for_one_that_is_known(one, other):
    repeats = Repeats()
    repeats.learn(Stencil(*one).write(1, 2), with_numbers(one[0], 1, 2), one[1])
    found = repeats.find(Stencil(*other).write(3, 4))
    if found is not None:
        assert with_numbers(*found) == with_numbers(other[0], 3, 4)
        assert one[1] == other[1]


@pytest.mark.parametrize("change", [{"view": 2}, {"key": 4}, {"rank": 1}])
def test_whatever_is_different_is_not_found(change):
    repeats, message = Repeats(), push()
    repeats.learn(Stencil(message, 8).write(5, 7), message, 8)
    assert repeats.find(Stencil(push(**change), 8).write(6, 8)) is None
    assert repeats.find(Stencil(message, 8).write(6, 8)) == (message, 6, 8)


def test_a_head_of_the_codec_is_neither_learned_nor_found():
    repeats, message = Repeats(), push()
    repeats.learn(encode(message, 8), message, 8)
    assert repeats.find(encode(message, 8)) is None
    assert repeats.find(Stencil(message, 8).write(5, 7)) is None


def test_a_head_with_a_number_out_of_range_is_left_to_the_codec():
    stencil = Stencil(push(), 8)
    repeats = Repeats()
    repeats.learn(stencil.write(5, 7), push(), 8)
    assert repeats.find(stencil.write(2**62 + 1, 7)) is None
    assert repeats.find(stencil.write(5, 2**64 - 1)) is None


@given(st.binary(max_size=200))
def test_any_bytes_may_be_looked_for(noise):
    repeats, message = Repeats(), push()
    repeats.learn(Stencil(message, 8).write(5, 7), message, 8)
    assert repeats.find(noise) is None


def test_what_is_kept_is_bounded():
    repeats = Repeats()
    for key in range(3000):
        message = push(key=100_000 + key)
        repeats.learn(Stencil(message, 8).write(5, 7), message, 8)
    assert len(repeats._known) <= 1 << 10
    assert repeats.find(Stencil(message, 8).write(6, 8)) == (message, 6, 8)
