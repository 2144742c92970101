"""The queue of a link: priority first, then order, as far as credit goes."""

from hypothesis import given
from hypothesis import strategies as st

from bireme.transport.base import Frame
from bireme.transport.outbox import Outbox


@given(st.lists(st.integers(-3, 3)))
def test_frames_leave_by_priority_then_order(priorities: list[int]) -> None:
    outbox = Outbox(100)
    for number, priority in enumerate(priorities):
        outbox.push(Frame(str(number).encode()), priority, None)
    left = [waiting.frame.head for waiting in iter(outbox.pop, None)]
    expected = sorted(range(len(priorities)), key=lambda n: (-priorities[n], n))
    assert left == [str(number).encode() for number in expected]


def test_a_frame_without_credit_holds_back_those_behind_it_only() -> None:
    outbox = Outbox(100)
    outbox.push(Frame(b"a", [bytes(80)]), 0, None)
    outbox.push(Frame(b"b", [bytes(80)]), 0, None)
    outbox.push(Frame(b"c"), 0, None)
    assert outbox.pop() is not None
    assert outbox.pop() is None
    outbox.push(Frame(b"urgent"), 1, None)
    urgent = outbox.pop()
    assert urgent is not None
    assert urgent.frame.head == b"urgent"
    outbox.window.returned(80)
    assert [waiting.frame.head for waiting in iter(outbox.pop, None)] == [b"b", b"c"]


def test_drain_takes_everything_in_order() -> None:
    outbox = Outbox(1)
    outbox.push(Frame(b"a", [bytes(80)]), 0, None)
    outbox.push(Frame(b"b", [bytes(80)]), 1, None)
    assert outbox.queued_bytes == 160
    assert [waiting.frame.head for waiting in outbox.drain()] == [b"b", b"a"]
    assert (len(outbox), outbox.queued_bytes) == (0, 0)
