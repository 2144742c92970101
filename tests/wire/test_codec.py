"""Every message has golden bytes and survives the round trip; whatever else comes in is refused.

Golden bytes are the contract between releases. After a wanted change, raise the protocol's
version, then run ``python tests/wire/test_codec.py`` to write the new ones.
"""

import json
import os
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.wire.samples import SAMPLES
from tests.wire.strategies import MESSAGES_OF_ANY_KIND

from bireme.errors import LocalProtocolError, RemoteProtocolError
from bireme.wire.codec import decode_head, encode
from bireme.wire.header import HEADER_BYTES, crc_of, write_header
from bireme.wire.limits import BEFORE_PROOF, Limits
from bireme.wire.messages import (
    MESSAGES,
    Attach,
    Command,
    CommandKind,
    Heartbeat,
    Init,
    Kind,
    Push,
    PushEntry,
    Refused,
    Rounds,
    Status,
)

GOLDEN = Path(__file__).with_name("golden.json")


def encoded(message):
    return encode(message, message.payload_size())


def head(kind, body, payload_bytes=0):
    return write_header(kind, body, payload_bytes) + body


def pack(*fields):
    return msgspec.msgpack.encode(fields)


def test_every_message_has_golden_bytes():
    golden = json.loads(GOLDEN.read_text())
    assert {name: encoded(message).hex() for name, message in SAMPLES.items()} == golden
    assert {type(message) for message in SAMPLES.values()} == set(MESSAGES.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes_read_back(name):
    data = bytes.fromhex(json.loads(GOLDEN.read_text())[name])
    message = SAMPLES[name]
    assert decode_head(data) == (message, message.payload_size())


def test_text_that_cannot_be_utf8_travels_escaped():
    odd = os.fsdecode(b"caf\xe9")
    message = Command(1, 2, 0, CommandKind.SAVE_STATE, {"a": [odd, {odd: b"caf\xe9"}], "b": 3})
    found, _ = decode_head(encode(message))
    assert found.body == {"a": ["caf\\udce9", {"caf\\udce9": b"caf\xe9"}], "b": 3}
    assert (found.number, found.view, found.command) == (1, 2, CommandKind.SAVE_STATE)


@given(MESSAGES_OF_ANY_KIND)
def test_round_trip(message):
    payload_bytes = message.payload_size()
    assume(payload_bytes < 2**63)
    limits = Limits(max_payload_bytes=2**63 - 1)
    data = encode(message, payload_bytes, limits=limits)
    read, read_bytes = decode_head(memoryview(bytearray(data)), limits)
    assert type(read) is type(message)
    assert (read, read_bytes) == (message, payload_bytes)


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_any_damaged_byte_is_noticed(name, data):
    good = bytearray(encoded(SAMPLES[name]))
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteProtocolError):
        decode_head(good)


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_truncated_and_extended_heads_are_refused(name, data):
    good = encoded(SAMPLES[name])
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(RemoteProtocolError):
        decode_head(good[:cut])
    with pytest.raises(RemoteProtocolError):
        decode_head(good + data.draw(st.binary(min_size=1, max_size=8)))


@given(st.integers(0, 255), st.binary(max_size=64))
@example(Kind.STATUS, b"\x92\x00\x81\xa1a" + b"\x91" * 50_000)
@example(Kind.STATUS, b"\x92\x00\x81\xa1a\xd6\xff\xff\xff\xff\xff")
@example(Kind.STATUS, b"\x92\x00\x81\xa1a\xd6\x05\xff\xff\xff\xff")
@example(Kind.STATUS, b"\x92\x00\x81\xa1a\x81\x80\x01")
@example(Kind.STATUS, pack(0, {"a": {3: 4}}))
@example(Kind.LEAVE_ACK, b"")
@example(Kind.LEAVE_ACK, b"\x90\x90")
def test_a_well_sealed_frame_of_nonsense_is_refused(kind, body):
    try:
        message, _ = decode_head(head(kind, body))
    except RemoteProtocolError:
        return
    assert type(message) is MESSAGES[kind]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (200, pack(), "unknown kind 200"),
        (Kind.HEARTBEAT, pack(), "length"),
        (Kind.HEARTBEAT, pack(1.0, 2, 3), "length"),
        (Kind.HEARTBEAT, pack("1.0", 2), "Expected `float`"),
        (Kind.HEARTBEAT, pack(1.0, -1), ">= 0"),
        (Kind.HEARTBEAT, msgspec.msgpack.encode({"sent_s": 1.0}), "Expected `array`"),
        (Kind.ATTACH, pack(["worker", -1], 1, 1), ">= 0"),
        (Kind.ATTACH, pack(["scheduler", 1], 1, 1), "one scheduler"),
        (Kind.ATTACH, pack(["captain", 1], 1, 1), "captain"),
        (Kind.ATTACH, pack(["worker", 1], 0, 1), ">= 1"),
        (Kind.REFUSED, pack("x" * 70_000), "65536"),
        (Kind.PUSH, pack(0, 1, 0, 0, 1, float("inf"), True, False, 0, 0, []), "finite"),
        (Kind.PUSH, pack(0, 1, 0, 0, 1, float("nan"), True, False, 0, 0, []), ">= 0.0"),
        (Kind.PUSH, pack(0, 1, 0, 3, 3, 1.0, True, False, 0, 0, []), "no shard"),
        (Kind.PUSH, pack(0, 1, 0, 0, 1, 1.0, True, False, 0, 0, [[0, 0, 0, 2**62 + 1]]), "4611686"),
        (Kind.STATUS, pack(0, {"a": msgspec.msgpack.Ext(1, b"x")}), "extension 1"),
        (Kind.STATUS, pack(0, {"a": {1: 2}}), "keys"),
    ],
)
def test_what_a_refusal_says(kind, body, words):
    with pytest.raises(RemoteProtocolError, match=words):
        decode_head(head(kind, body))


def test_payload_and_entries_agree():
    push = Push(
        0, 1, 0, 0, 1, 1.0, False, False, 0, 0, (PushEntry(0, 0, 0, 8), PushEntry(1, 0, 0, 4))
    )
    assert decode_head(encode(push, 12)) == (push, 12)
    with pytest.raises(LocalProtocolError, match="announces 12 bytes of payload, but 8"):
        encode(push, 8)
    body = encode(push, 12)[HEADER_BYTES:]
    with pytest.raises(RemoteProtocolError, match="sum to 12 bytes of payload, its frame to 13"):
        decode_head(head(Kind.PUSH, body, 13))
    with pytest.raises(RemoteProtocolError, match="sum to 0"):
        decode_head(head(Kind.LEAVE_ACK, b"\x90", 1))


def test_sums_beyond_any_integer_are_refused():
    huge = Push(0, 1, 0, 0, 1, 1.0, False, False, 0, 0, (PushEntry(0, 0, 0, 2**62),) * 5)
    with pytest.raises(LocalProtocolError, match="exceeds the limits"):
        encode(huge, 5 * 2**62)
    with pytest.raises(RemoteProtocolError, match="sum to"):
        decode_head(head(Kind.PUSH, msgspec.msgpack.encode(huge), 2**20))


def test_limits_hold_in_both_directions():
    small = Limits(max_body_bytes=16, max_payload_bytes=8)
    with pytest.raises(LocalProtocolError, match="exceeds the limits"):
        encode(Refused("x" * 100), limits=small)
    with pytest.raises(RemoteProtocolError, match="at most 16 are taken"):
        decode_head(encode(Refused("x" * 100)), small)
    with pytest.raises(RemoteProtocolError, match="at most 0 are taken"):
        decode_head(encode(SAMPLES["PullRows"], 24), BEFORE_PROOF)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.ROUNDS, b"\x93\x00\x01\xdd\xff\xff\xff\xff"),
        (Kind.STATUS, b"\x92\x00\xdf\xff\xff\xff\xff"),
        (Kind.STATUS, b"\x92\x00\x81\xa1a\xdd\xff\xff\xff\xff"),
        (Kind.STATUS, b"\x92\x00\x81\xa1a\xc6\xff\xff\xff\xff"),
        (Kind.REFUSED, b"\x91\xdb\xff\xff\xff\xff"),
        (Kind.LEAVE_ACK, b"\xdd\xff\xff\xff\xff"),
    ],
)
def test_no_memory_is_taken_on_a_peers_word(kind, body):
    data = head(kind, body)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decode_head(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_what_cannot_be_encoded_is_our_own_fault():
    with pytest.raises(LocalProtocolError, match="cannot encode Refused"):
        encode(Refused(object()))
    with pytest.raises(LocalProtocolError, match="cannot encode Heartbeat"):
        encode(Heartbeat(1.0, 2**70))


def test_a_payloads_checksum_travels_in_the_head():
    message = SAMPLES["PullRows"]
    with_crc = encode(message, 24, payload_crc=crc_of([b"x" * 24]))
    assert len(with_crc) == len(encode(message, 24))
    assert decode_head(with_crc) == (message, 24)


def test_messages_are_values():
    assert isinstance(hash(SAMPLES["Push"]), int)
    with pytest.raises(AttributeError, match="immutable"):
        SAMPLES["Heartbeat"].view = 3
    assert Status(1, {}).payload_size() == 0
    assert {Init, Attach, Rounds} < set(MESSAGES.values())


if __name__ == "__main__":
    lines = {name: encoded(message).hex() for name, message in SAMPLES.items()}
    GOLDEN.write_text(json.dumps(lines, indent=1) + "\n")
