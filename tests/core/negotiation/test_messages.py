"""Masks, and messages that survive the way."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.negotiation.messages import (
    Ended,
    Failed,
    Fault,
    Forget,
    Kind,
    Learned,
    Report,
    Request,
    Run,
    Settled,
    Verdict,
    bits,
    mask_of,
    packed,
)


@given(st.sets(st.integers(0, 3000)))
def test_masks_come_back(slots):
    mask = sum(1 << slot for slot in slots)
    assert mask_of(packed(mask)) == mask
    assert bits(mask) == sorted(slots)


def test_messages_come_back():
    request = Request(
        "a", Kind.ALLTOALL, "bfloat16", (2, 3), "cuda", 1, 0.5, 2.0, 1, 3, "g", 2, (1,)
    )
    items = [
        Learned(3, request, (1, 2)),
        Forget(4),
        Run(b"\x01"),
        Failed(0, ["a", "b"], Fault.MISMATCH, "why"),
        Settled(request, 7),
        Ended(Fault.LOST, "who"),
    ]
    for message in (Verdict(9, items), Report(3, b"\x05", [request], True, "no", Fault.LOST)):
        data = msgspec.msgpack.encode(message)
        assert msgspec.msgpack.decode(data, type=type(message)) == message


def test_a_report_of_a_repeated_step_is_small():
    assert len(msgspec.msgpack.encode(Report(5, packed((1 << 100) - 1)))) < 24


def test_strangers_are_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode([1, [[99]]]), type=Verdict)
