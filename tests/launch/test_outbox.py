"""Nothing blocks and nothing is lost on the way into a pipe."""

import os

import pytest

from bireme.launch.outbox import Outbox


@pytest.fixture
def pipe():
    ends = list(os.pipe())
    yield ends
    for end in ends:
        os.close(end)


def test_more_than_a_pipe_holds(pipe):
    reader, writer = pipe
    outbox = Outbox(writer)
    data = bytes(range(256)) * 4096
    for start in range(0, len(data), 10_000):
        outbox.put(data[start : start + 10_000])
    assert 0 < outbox.size_bytes < len(data)
    found = b""
    while outbox.size_bytes:
        found += os.read(reader, 50_000)
        outbox.flush()
    os.set_blocking(reader, False)
    while len(found) < len(data):
        found += os.read(reader, 50_000)
    assert found == data


def test_nobody_reads_any_more(pipe):
    outbox = Outbox(pipe[1])
    os.close(pipe.pop(0))
    outbox.put(b"x")
    assert outbox.is_broken
    outbox.put(b"y")
    assert outbox.size_bytes == 0
