from bireme.core.calls import BarrierCall
from bireme.core.opencalls import OpenCalls


def test_expired_calls_come_once_and_closed_ones_never():
    calls = OpenCalls()
    first = calls.open(BarrierCall(1, "a", 1.0), 0.0)
    calls.open(BarrierCall(2, "b", 2.0), 0.0)
    calls.close(first)
    assert calls.next_deadline_s() == 2.0
    assert [call.id for call in calls.expired(5.0)] == [2]
    assert calls.expired(9.0) == []
    assert calls.get(1) is None
    assert len(calls) == 1


def test_memory_does_not_grow_with_calls_that_are_done():
    calls = OpenCalls()
    for number in range(10_000):
        calls.close(calls.open(BarrierCall(number, "a", 1000.0), 0.0))
    assert len(calls._heap) < 100
