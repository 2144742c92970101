"""Credit: the sender never waits for credit that will not come, the receiver is never flooded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import RemoteProtocolError
from bireme.transport.credit import ReceiveWindow, SendWindow


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 1500), st.integers(0, 3)), max_size=60),
)
def test_the_two_accounts_agree_and_nothing_is_stuck(
    window_bytes: int, steps: list[tuple[int, int]]
) -> None:
    sender, receiver = SendWindow(window_bytes), ReceiveWindow(window_bytes)
    held: list[int] = []

    def release() -> None:
        report_bytes = receiver.released(held.pop(0))
        if report_bytes:
            sender.returned(report_bytes)

    for size_bytes, num_releases in steps:
        while not sender.allows(size_bytes):
            assert held, "stuck: everything is released, and the sender has no credit"
            release()
        sender.sent(size_bytes)
        receiver.received(size_bytes)
        held.append(size_bytes)
        largest = max(held)
        assert receiver.unreleased_bytes <= max(window_bytes, largest + window_bytes / 4)
        for _ in range(min(num_releases, len(held))):
            release()


def test_a_peer_that_floods_is_refused() -> None:
    receiver = ReceiveWindow(100)
    receiver.received(100)
    with pytest.raises(RemoteProtocolError, match="window of 100"):
        receiver.received(1)


def test_a_peer_that_invents_credit_is_refused() -> None:
    sender = SendWindow(100)
    sender.sent(10)
    with pytest.raises(RemoteProtocolError, match="only 10"):
        sender.returned(11)


def test_frames_without_payload_need_no_credit() -> None:
    sender = SendWindow(10)
    sender.sent(10)
    assert sender.allows(0)
    assert not sender.allows(1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 120)), max_size=40))
def test_what_passes_counts_as_received_and_released(steps: list[tuple[bool, int]]) -> None:
    one, other = ReceiveWindow(100), ReceiveWindow(100)
    for at_once, size_bytes in steps:
        outcomes = []
        for window in (one, other):
            try:
                if window is one and at_once:
                    outcomes.append(window.passed(size_bytes))
                else:
                    window.received(size_bytes)
                    outcomes.append(window.released(size_bytes))
            except RemoteProtocolError:
                outcomes.append(-1)
        assert outcomes[0] == outcomes[1]
        assert one.unreleased_bytes == other.unreleased_bytes == 0
