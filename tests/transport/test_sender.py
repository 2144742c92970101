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


class Counted:
    """Memory that counts who needs it."""

    def __init__(self) -> None:
        self.count = self.most = 0

    def retain(self) -> None:
        self.count += 1
        self.most = max(self.most, self.count)

    def release(self) -> None:
        self.count -= 1


def at_once(harness: Harness, data: bytes, memory: Counted | None = None) -> bool:
    payload = [memoryview(data)]
    return harness.sender.send_at_once(b"head", payload, len(data), memory or Counted())


def test_a_small_frame_leaves_at_once_and_its_memory_is_free() -> None:
    harness, memory = Harness(), Counted()
    assert at_once(harness, b"payload", memory)
    assert harness.sink.taken == b"headpayload"
    assert memory.most == 0
    assert harness.sender.outbox.window.outstanding_bytes == 7
    assert (harness.sender.num_sent, harness.sender.sent_bytes) == (1, 11)


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 15), max_size=50))
def test_both_ways_of_sending_keep_every_byte_and_the_order(
    payloads: list[bytes], portions: list[int]
) -> None:
    harness, memory, expected = Harness(portions), Counted(), b""
    for payload in payloads:
        expected += b"head" + payload
        if not at_once(harness, payload, memory):
            harness.sender.send(Frame(b"head", [payload]), 0, None)
    harness.drain()
    assert harness.sink.taken == expected
    assert memory.count == 0
    assert memory.most <= 1


def test_what_waits_leaves_first() -> None:
    harness = Harness([0])
    harness.sender.send(Frame(b"first"), 0, None)
    assert not at_once(harness, b"payload")
    harness.drain()
    harness.sender.add_own(b"own")
    assert not at_once(harness, b"payload")


def test_without_credit_or_with_much_payload_nothing_leaves_at_once() -> None:
    harness = Harness(window_bytes=10)
    assert at_once(harness, b"12345678")
    assert not at_once(harness, b"345")
    assert not at_once(Harness(), bytes((48 << 10) + 1))


def test_memory_is_kept_until_the_rest_has_left_or_is_dropped() -> None:
    harness, memory = Harness([6, 0]), Counted()
    assert at_once(harness, b"payload", memory)
    assert memory.count == 1
    harness.drain()
    assert memory.count == 0
    assert harness.sink.taken == b"headpayload"
    other = Harness([6, 0])
    assert at_once(other, b"payload", memory)
    other.sender.stop("lost")
    assert memory.count == 0
    assert other.sink.closed


def test_a_broken_connection_is_told_and_takes_nothing_more() -> None:
    harness, memory = Harness(), Counted()
    harness.sink.error = OSError("reset")
    assert at_once(harness, b"payload", memory)
    assert memory.count == 0
    assert len(harness.failed) == 1
    assert not at_once(harness, b"payload", memory)


def test_after_the_end_nothing_leaves_at_once() -> None:
    harness = Harness()
    harness.sender.end(b"bye", "closed")
    assert not at_once(harness, b"payload")
