"""The codec that knows entries again reads and writes what the plain functions do."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.wire.samples import SAMPLES
from tests.wire.strategies import structs

from bireme.errors import LocalProtocolError, RemoteProtocolError
from bireme.wire import recall
from bireme.wire.codec import decode_head, encode
from bireme.wire.data import Pull, PullEntry, Push, PushEntry, Value, ValueEntry
from bireme.wire.limits import Limits
from bireme.wire.recall import Codec

WIDE = Limits(max_payload_bytes=2**63 - 1)
ONE_FOR_ALL = Codec(WIDE)


def push(number: int, size_bytes: int = 8) -> Push:
    entries = (PushEntry(3, 0, 0, size_bytes), PushEntry(4, 1, 2, 4, "2bit"))
    return Push(number, 1, 0, 0, 1, 1.0, False, True, number, 0, entries)


@given(st.one_of([structs(each) for each in (Push, Pull, Value)]))
def test_it_agrees_with_the_plain_functions(message):
    payload_bytes = message.payload_size()
    assume(payload_bytes < 2**63)
    head = encode(message, payload_bytes, limits=WIDE)
    for _ in range(2):
        assert ONE_FOR_ALL.encode(message, payload_bytes) == head
        assert ONE_FOR_ALL.decode(head) == (message, payload_bytes)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_message_passes(name):
    message = SAMPLES[name]
    codec, size = Codec(), message.payload_size()
    assert codec.encode(message, size) == encode(message, size)
    assert codec.decode(codec.encode(message, size, payload_crc=7)) == (message, size)


@given(st.sampled_from(["Push", "Pull", "Value"]), st.data())
def test_damage_is_refused_by_both_or_neither(name, data):
    body = bytearray(encode(SAMPLES[name], SAMPLES[name].payload_size())[28:])
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    head = recall.join_head(
        SAMPLES[name], bytes(body), SAMPLES[name].payload_size(), None, Limits()
    )
    found = []
    for decode in (decode_head, Codec().decode):
        try:
            found.append(decode(head))
        except RemoteProtocolError:
            found.append(None)
    assert found[0] == found[1]


def test_the_same_bytes_give_the_same_entries():
    codec = Codec()
    first, second, other = (
        codec.decode(encode(each, each.payload_size()))[0]
        for each in (push(0), push(1), push(2, 9))
    )
    assert first.entries is second.entries
    assert other.entries is not first.entries


def test_a_payload_of_another_size_is_refused():
    codec = Codec()
    with pytest.raises(LocalProtocolError, match="announces 12 bytes"):
        codec.encode(push(0), 13)
    entries = (ValueEntry(0, 0, 0, 8),)
    lying = bytearray(encode(Value(0, 1, 0, entries), 8))
    lying = recall.join_head(Value(0, 1, 0, entries), bytes(lying[28:]), 9, None, Limits())
    with pytest.raises(RemoteProtocolError, match="sum to 8 bytes"):
        codec.decode(lying)


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(LocalProtocolError, match="limits"):
        Codec(Limits(max_body_bytes=4)).encode(push(0), 12)
    with pytest.raises(LocalProtocolError, match="cannot encode"):
        Codec().encode(Pull(0, 1, 0, 0, (PullEntry(2**70, 0, 0),)), 0)
    with pytest.raises(LocalProtocolError, match="cannot encode"):
        Codec().encode(Pull(2**70, 1, 0, 0, ()), 0)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(recall, "_MOST_KEPT_BYTES", 5000)
    codec = Codec()
    for size in range(1000):
        message = push(0, size)
        assert codec.decode(codec.encode(message, size + 4)) == (message, size + 4)
        assert len(codec._read) < 25
        assert len(codec._written) < 25
