"""Frames and options on their own."""

import array

import pytest

from bireme.errors import ConfigError
from bireme.transport.base import Frame, ReceivedFrame, TransportOptions


def test_payloads_are_seen_as_bytes_without_copies() -> None:
    numbers = array.array("d", [1.0, 2.0])
    frame = Frame(b"", [memoryview(numbers), b"", b"abc"])
    assert [piece.nbytes for piece in frame.payload] == [16, 3]
    scalar = memoryview(b"abcd").cast("i", shape=[])
    assert Frame(b"", [scalar]).payload_bytes == 4
    numbers[0] = 5.0
    assert bytes(frame.payload[0]) == numbers.tobytes()


def test_payloads_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises(TypeError):
        Frame(b"", [memoryview(bytearray(10))[::2]])


def test_release_gives_back_once() -> None:
    given: list[ReceivedFrame] = []
    frame = ReceivedFrame(b"", memoryview(b"x"), given.append)
    frame.release()
    frame.release()
    assert given == [frame]


@pytest.mark.parametrize("name", ["window_bytes", "handshake_timeout_s", "max_unproven"])
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TransportOptions(**{name: 0})  # type: ignore[arg-type]


def test_the_secret_does_not_show() -> None:
    assert "hidden" not in repr(TransportOptions(secret=b"hidden"))
