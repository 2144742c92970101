"""The sending half: partial writes, full sockets, one writer, an orderly end."""

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import PeerLost
from bireme.transport.base import Frame
from bireme.transport.sender import Sender
from bireme.transport.streams import WOULD_BLOCK


class Sink:
    """A stream that takes given portions; 0 stands for a full socket."""

    short_means_empty = True

    def __init__(self, portions: Sequence[int] = ()) -> None:
        self.portions = list(portions)
        self.taken = b""
        self.ended = self.closed = False
        self.error: OSError | None = None
        self.inside = threading.Lock()

    def send(self, pieces: Sequence[bytes | memoryview], descriptors: Sequence[int] = ()) -> int:
        assert self.inside.acquire(blocking=False), "two threads write at once"
        try:
            assert not self.closed
            if self.error is not None:
                raise self.error
            data = b"".join(pieces)
            portion = self.portions.pop(0) if self.portions else len(data)
            if not portion:
                return WOULD_BLOCK
            self.taken += data[:portion]
            return min(portion, len(data))
        finally:
            self.inside.release()

    def end_sending(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True


class Harness:
    def __init__(self, portions: Sequence[int] = (), window_bytes: int = 1 << 30) -> None:
        self.sink = Sink(portions)
        self.blocked = 0
        self.failed: list[str] = []
        self.sender = Sender(
            self.sink,  # type: ignore[arg-type]
            window_bytes,
            None,
            on_blocked=self._on_blocked,
            on_failed=self.failed.append,
        )

    def _on_blocked(self) -> None:
        self.blocked += 1

    def drain(self) -> None:
        while self.sender.blocked:
            self.sender.writable()


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.lists(st.binary(max_size=30), max_size=3))),
    st.lists(st.integers(0, 15), max_size=50),
)
def test_every_byte_leaves_once_and_in_order(
    specs: list[tuple[bytes, list[bytes]]], portions: list[int]
) -> None:
    harness = Harness(portions)
    sent: list[int] = []
    expected = b""
    for number, (head, payload) in enumerate(specs):
        expected += head + b"".join(payload)
        if head or any(payload):
            harness.sender.send(Frame(head, payload), 0, lambda n=number: sent.append(n))  # type: ignore[misc]
    harness.drain()
    assert harness.sink.taken == expected
    assert sent == [n for n, (head, payload) in enumerate(specs) if head or any(payload)]


def test_a_full_socket_leaves_the_rest_to_the_poller() -> None:
    harness = Harness([3, 0, 2, 0])
    harness.sender.send(Frame(b"abcdef"), 0, None)
    harness.sender.send(Frame(b"ghi"), 0, None)
    assert (harness.sink.taken, harness.blocked) == (b"abc", 1)
    harness.sender.writable()
    assert (harness.sink.taken, harness.blocked) == (b"abcde", 2)
    harness.sender.writable()
    assert harness.sink.taken == b"abcdefghi"
    assert not harness.sender.blocked


def test_no_caller_serves_the_others_for_ever() -> None:
    harness = Harness([1] * 1000)
    harness.sender.send(Frame(bytes(1000)), 0, None)
    assert (len(harness.sink.taken), harness.blocked) == (16, 1)


def test_the_end_comes_after_the_queue_and_after_credit() -> None:
    harness = Harness(window_bytes=10)
    harness.sender.send(Frame(b"a", [bytes(10)]), 0, None)
    harness.sender.send(Frame(b"b", [bytes(10)]), 0, None)
    harness.sender.end(b"bye", "closed here")
    with pytest.raises(PeerLost, match="closed here"):
        harness.sender.send(Frame(b"c"), 0, None)
    assert harness.sink.taken == b"a" + bytes(10)
    assert not harness.sink.ended
    harness.sender.credit(10)
    assert harness.sink.taken == b"a" + bytes(10) + b"b" + bytes(10) + b"bye"
    assert harness.sink.ended
    assert harness.sender.said_goodbye
    harness.sender.send_own(b"late credit")
    assert harness.sink.taken.endswith(b"bye")


def test_a_broken_connection_is_reported_once_and_nothing_more_leaves() -> None:
    harness = Harness()
    harness.sink.error = BrokenPipeError("gone")
    harness.sender.send(Frame(b"a"), 0, None)
    assert harness.failed == ["the connection broke: gone"]
    with pytest.raises(PeerLost, match="gone"):
        harness.sender.send(Frame(b"b"), 0, None)
    harness.sender.writable()
    assert harness.failed == ["the connection broke: gone"]


def test_stopping_tells_whose_frames_were_dropped() -> None:
    harness = Harness([2, 0])
    told: list[str] = []
    harness.sender.send(Frame(b"under way"), 0, lambda: told.append("under way"))
    harness.sender.send(Frame(b"queued"), 0, lambda: told.append("queued"))
    harness.sender.stop("over")
    assert told == ["under way", "queued"]
    assert harness.sink.closed
    with pytest.raises(PeerLost, match="over"):
        harness.sender.send(Frame(b"b"), 0, None)


def test_the_socket_is_not_closed_under_a_writing_thread() -> None:
    harness = Harness()
    inside, go_on = threading.Event(), threading.Event()
    send = harness.sink.send

    def slow(pieces: Sequence[bytes | memoryview], descriptors: Sequence[int] = ()) -> int:
        inside.set()
        assert go_on.wait(20)
        return send(pieces, descriptors)

    harness.sink.send = slow  # type: ignore[method-assign]
    thread = threading.Thread(target=harness.sender.send, args=(Frame(b"a"), 0, None))
    thread.start()
    assert inside.wait(20)
    harness.sender.stop("over")
    assert not harness.sink.closed
    go_on.set()
    thread.join(20)
    assert harness.sink.closed
