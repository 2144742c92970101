"""A header says what follows, and is refused before anybody believes it."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import LocalProtocolError, RemoteProtocolError
from bireme.wire.header import (
    HEADER_BYTES,
    MAGIC,
    VERSION,
    Flags,
    check_body,
    check_payload,
    crc_of,
    read_header,
    write_header,
)
from bireme.wire.limits import BEFORE_PROOF, Limits

NO_LIMITS = Limits(max_body_bytes=2**32 - 1, max_payload_bytes=2**63 - 1)


def raw(magic=MAGIC, version=VERSION, kind=1, flags=0, body=0, payload=0, payload_crc=0):
    fields = struct.pack("<4sBBHIQI", magic, version, kind, flags, body, payload, payload_crc)
    return fields + struct.pack("<I", zlib.crc32(fields))


@given(
    st.integers(0, 255),
    st.binary(max_size=64),
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 2**32 - 1),
)
def test_round_trip(kind, body, payload_bytes, payload_crc):
    data = write_header(kind, body, payload_bytes, payload_crc=payload_crc)
    assert len(data) == HEADER_BYTES == 28
    header = read_header(data, NO_LIMITS)
    assert (header.kind, header.body_bytes) == (kind, len(body))
    assert (header.payload_bytes, header.payload_crc) == (payload_bytes, payload_crc or 0)
    assert header.flags == (Flags.NONE if payload_crc is None else Flags.CRC_PAYLOAD)
    assert header.head_bytes == HEADER_BYTES + len(body)
    check_body(data + body, header)


def test_golden_header():
    assert write_header(7, b"abc", 5, payload_crc=0x01020304).hex() == (
        "42524d310107010003000000050000000000000004030201" + "8b1be85c"
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "28 bytes, got 0"),
        (raw()[:-1], "28 bytes, got 27"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n", "starts with b'GET '"),
        (raw(magic=b"BRM2"), "does not speak this protocol"),
        (raw(version=2), "version 2, this process version 1"),
        (raw(flags=2), "unknown flags 0x0002"),
        (raw(payload_crc=1), "unknown flags"),
        (raw(body=(16 << 20) + 1), "body of 16777217 bytes; at most 16777216"),
        (raw(payload=2**64 - 1), "payload of 18446744073709551615 bytes"),
    ],
)
def test_what_is_refused(data, words):
    with pytest.raises(RemoteProtocolError, match=words):
        read_header(data)


def test_a_stranger_may_announce_little():
    assert read_header(raw(body=65536), BEFORE_PROOF).body_bytes == 65536
    with pytest.raises(RemoteProtocolError, match="at most 65536"):
        read_header(raw(body=65537), BEFORE_PROOF)
    with pytest.raises(RemoteProtocolError, match="at most 0"):
        read_header(raw(payload=1), BEFORE_PROOF)


def test_a_body_of_another_length_or_content_is_refused():
    body = b"abcdef"
    data = write_header(1, body, 0)
    header = read_header(data)
    check_body(memoryview(data + body), header)
    with pytest.raises(RemoteProtocolError, match="34 bytes was announced, got 33"):
        check_body((data + body)[:-1], header)
    with pytest.raises(RemoteProtocolError, match="damaged"):
        check_body(data + b"abcdeg", header)


def test_the_payloads_checksum_is_checked_when_there_is_one():
    checked = read_header(write_header(1, b"", 4, payload_crc=crc_of([b"ab", b"cd"])))
    check_payload(checked, [b"abc", memoryview(b"d")])
    with pytest.raises(RemoteProtocolError, match="its checksum is wrong"):
        check_payload(checked, [b"abce"])
    with pytest.raises(RemoteProtocolError, match="4 bytes was announced, got 3"):
        check_payload(checked, [b"abc"])
    unchecked = read_header(write_header(1, b"", 4))
    check_payload(unchecked, [b"zzzz"])
    with pytest.raises(RemoteProtocolError, match="got 5"):
        check_payload(unchecked, iter([b"zzzz", b"z"]))


def test_a_checksum_of_zero_is_a_checksum():
    header = read_header(write_header(1, b"", 0, payload_crc=0))
    assert header.flags == Flags.CRC_PAYLOAD
    check_payload(header, [])


@pytest.mark.parametrize(
    ("kind", "payload_bytes", "payload_crc"),
    [(256, 0, None), (-1, 0, None), (1, -1, None), (1, 2**64, None), (1, 0, 2**32)],
)
def test_fields_that_do_not_fit_are_our_own_fault(kind, payload_bytes, payload_crc):
    with pytest.raises(LocalProtocolError):
        write_header(kind, b"", payload_bytes, payload_crc=payload_crc)
