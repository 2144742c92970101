from bireme.observe import traffic
from bireme.observe.timeline import Timeline
from bireme.wire.messages import Heartbeat, Push, PushEntry, Value, ValueEntry


def events(timeline, phase):
    return [event for event in timeline.events() if event["ph"] == phase]


def test_a_payload_is_on_its_way_until_it_has_left():
    timeline, calls = Timeline("unused", "worker 0"), []
    timeline.names[3] = "w"
    entries = (PushEntry(3, 1, 0, 24), PushEntry(4, 0, 0, 8))
    push = Push(1, 1, 0, 0, 1, 1.0, False, True, 0, -5, entries)
    sent = traffic.sending(timeline, push, -5, lambda: calls.append(1))
    assert events(timeline, "b") == []
    sent()
    (begin,), (end,) = events(timeline, "b"), events(timeline, "e")
    assert begin["name"] == "push w[1] and 1 more"
    assert begin["args"] == {"bytes": 32, "priority": -5}
    assert end["ts"] >= begin["ts"]
    assert calls == [1]


def test_arrivals_are_moments():
    timeline = Timeline("unused", "worker 0")
    traffic.received(timeline, Value(1, 1, 0, (ValueEntry(3, 0, 0, 12),)))
    traffic.received(timeline, Value(1, 1, 0, ()))
    assert [event["name"] for event in events(timeline, "i")] == ["value 3[0]", "value"]


def test_other_messages_leave_no_trace():
    timeline, calls = Timeline("unused", "worker 0"), []
    traffic.received(timeline, Heartbeat(1.0, 1))
    traffic.sending(timeline, Heartbeat(1.0, 1), 0, lambda: calls.append(1))()
    assert calls == [1]
    assert len(timeline.events()) == 1
