"""Bytes to frames, in whatever portions they come."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import BiremeError, RemoteProtocolError
from bireme.node.memory import address_of
from bireme.transport.reader import FrameReader, Staging
from bireme.transport.seal import Seal
from bireme.transport.streams import WOULD_BLOCK
from bireme.wire.header import crc_of, write_header
from bireme.wire.limits import Limits


class Source:
    """A stream that yields given bytes in given portions."""

    short_means_empty = True

    def __init__(self, data: bytes, portions: Sequence[int]) -> None:
        self.data = data
        self.portions = list(portions)

    def receive(self, targets: Sequence[memoryview]) -> int:
        limit = self.portions.pop(0) if self.portions else 1 << 30
        total = 0
        for target in targets:
            part = self.data[: min(len(target), limit - total)]
            target[: len(part)] = part
            self.data = self.data[len(part) :]
            total += len(part)
        return total if total else WOULD_BLOCK


class Taker:
    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes, bytes]] = []

    def payload_memory(self, head: bytes, payload_bytes: int) -> memoryview:
        return memoryview(bytearray(payload_bytes))

    def take_frame(self, kind: int, head: bytes, payload: memoryview) -> None:
        self.frames.append((kind, head, bytes(payload)))

    def take_staged(self, kind: int, head: bytes, payload: memoryview, staging: Staging) -> None:
        assert payload.obj is staging.memory.obj
        self.take_frame(kind, head, payload)


def frame(kind: int, body: bytes, payload: bytes, crc: bool = False) -> tuple[bytes, bytes]:
    payload_crc = crc_of([payload]) if crc else None
    return write_header(kind, body, len(payload), payload_crc=payload_crc) + body, payload


def read_all(data: bytes, portions: Sequence[int], seal: Seal | None = None, first: int = 0):
    taker = Taker()
    reader = FrameReader(taker, Limits(), seal, data[:first])
    source = Source(data[first:], portions)
    reader.parse()
    while reader.read(source) != WOULD_BLOCK:  # type: ignore[arg-type]
        pass
    return taker.frames, reader


_frames = st.lists(
    st.tuples(
        st.integers(0, 239),
        st.binary(max_size=60) | st.just(bytes(40_000)),
        st.binary(max_size=200) | st.just(b"p" * 70_000),
        st.booleans(),
    ),
    max_size=6,
)


@given(_frames, st.lists(st.integers(1, 50_000), max_size=30), st.booleans(), st.integers(0, 9000))
def test_frames_come_out_as_they_went_in(
    specs: list[tuple[int, bytes, bytes, bool]],
    portions: list[int],
    sealed: bool,
    first: int,
) -> None:
    seal = Seal(b"key")
    data, expected = b"", []
    for kind, body, payload, crc in specs:
        head, _ = frame(kind, body, payload, crc)
        data += head + (seal.seal(head) if sealed else b"") + payload
        expected.append((kind, head, payload))
    frames, reader = read_all(data, portions, Seal(b"key") if sealed else None, first)
    assert frames == expected
    assert not reader.mid_frame
    assert reader.num_bytes == len(data)


@given(st.binary(max_size=400), st.integers(0, 120))
def test_noise_is_an_error_of_ours_or_waits_for_more(noise: bytes, at: int) -> None:
    head, payload = frame(7, b"body", b"payload" * 10)
    try:
        frames, _ = read_all((head + payload)[:at] + noise, [])
    except BiremeError:
        return
    assert len(frames) <= 1 + len(noise) // 28


def test_a_frame_cut_short_is_seen() -> None:
    head, payload = frame(7, b"body", b"payload")
    for length in range(1, len(head + payload)):
        frames, reader = read_all((head + payload)[:length], [])
        assert not frames
        assert reader.mid_frame


@pytest.mark.parametrize("at", [5, 24, 30])
def test_a_flipped_bit_in_a_head_is_an_error(at: int) -> None:
    head = bytearray(frame(7, b"body", b"")[0])
    head[at] ^= 1
    with pytest.raises(RemoteProtocolError):
        read_all(bytes(head), [])


def test_a_damaged_payload_is_an_error_if_it_has_a_checksum() -> None:
    head, _ = frame(7, b"", b"payload", crc=True)
    with pytest.raises(RemoteProtocolError, match="checksum"):
        read_all(head + b"paxload", [])


def test_limits_are_checked_before_memory_is_asked_for() -> None:
    class Refusing(Taker):
        def payload_memory(self, head: bytes, payload_bytes: int) -> memoryview:
            raise AssertionError("memory was asked for")

    reader = FrameReader(Refusing(), Limits(max_payload_bytes=10), None)
    with pytest.raises(RemoteProtocolError, match="11 bytes"):
        reader.read(Source(write_header(7, b"", 11), []))  # type: ignore[arg-type]


class Keeper(Taker):
    """Keeps every staged payload for as long as it pleases."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[memoryview, bytes, Staging]] = []

    def take_staged(self, kind: int, head: bytes, payload: memoryview, staging: Staging) -> None:
        staging.lent += 1
        self.kept.append((payload, bytes(payload), staging))


@given(
    st.lists(st.tuples(st.integers(1, 50_000), st.booleans()), min_size=1, max_size=12),
    st.lists(st.integers(1, 50_000), max_size=30),
    st.sets(st.integers(0, 11)),
)
def test_what_is_lent_stays_as_it_came(
    specs: list[tuple[int, bool]], portions: list[int], released: set[int]
) -> None:
    data = b""
    for number, (size_bytes, has_more) in enumerate(specs):
        body = b"body" * (9000 if has_more else number)
        data += b"".join(frame(7, body, bytes([number]) * size_bytes))
    taker = Keeper()
    reader, source = FrameReader(taker, Limits(), None), Source(data, portions)
    num_seen = 0
    while reader.read(source) != WOULD_BLOCK:  # type: ignore[arg-type]
        for _, _, staging in [
            each for i, each in enumerate(taker.kept[num_seen:], num_seen) if i in released
        ]:
            staging.lent -= 1
        num_seen = len(taker.kept)
    for number, (payload, copy, _) in enumerate(taker.kept):
        if number not in released:
            assert payload == copy
    assert len(taker.kept) + len(taker.frames) == len(specs)


def test_a_payload_behind_a_head_of_the_same_size_lies_aligned() -> None:
    taker = Keeper()
    reader = FrameReader(taker, Limits(), None)
    for number in range(3):
        data = b"".join(frame(7, b"odd", bytes(4096)))
        reader.read(Source(data, []))  # type: ignore[arg-type]
        payload, _, staging = taker.kept[-1]
        staging.lent -= 1
        start = address_of(payload) - address_of(staging.memory)
        assert number == 0 or start % 64 == 0
