"""Sockets as links use them."""

import os
import socket
from collections.abc import Iterator

import pytest

from bireme.transport.streams import WOULD_BLOCK, DescriptorStream, PlainStream


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


def test_more_pieces_than_the_system_takes_are_sent_in_portions(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one, other = map(PlainStream, ends)
    pieces: list[bytes | memoryview] = [b"x"] * 5000
    assert 0 < one.send(pieces) < 5000
    assert other.receive([memoryview(bytearray(5000))]) > 0


def test_a_full_socket_would_block(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = map(PlainStream, ends)
    while one.send([bytes(1 << 20)]) != WOULD_BLOCK:
        pass
    one.end_sending()
    target = memoryview(bytearray(1 << 20))
    while other.receive([target]) > 0:
        pass
    assert other.receive([target]) == 0


def test_a_gone_peer_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = map(PlainStream, ends)
    other.close()
    with pytest.raises(BrokenPipeError):
        one.send([b"x"])


def test_files_travel_with_the_bytes_and_are_closed_if_nobody_takes_them(
    ends: tuple[socket.socket, socket.socket], tmp_path: os.PathLike[str]
) -> None:
    one, other = map(DescriptorStream, ends)
    with open(os.path.join(tmp_path, "file"), "wb+") as file:
        one.send([b"a"])
        assert one.send([b"b"], [file.fileno(), file.fileno()]) == 1
        target = memoryview(bytearray(10))
        received = 0
        while received < 2:
            received += other.receive([target])
        assert len(other.descriptors) == 2
        first = other.descriptors.popleft()
        assert os.path.samestat(os.fstat(first), os.fstat(file.fileno()))
        os.close(first)
        (second,) = other.descriptors
        other.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(second)
    assert one.peer_process() == os.getpid()
