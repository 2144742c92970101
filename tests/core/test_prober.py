import pytest

from bireme.core.actions import Close, Connect, Fill
from bireme.core.events import ConnectFailed, Linked, Lost, Received
from bireme.core.prober import Prober
from bireme.types.nodes import server
from bireme.wire.messages import Ping, Pong, Probe, Target

TARGETS = (Target(server(0), ("tcp://a",)), Target(server(1), ("tcp://b",)))
LINKS = {server(0): 5, server(1): 6}


def pongs(actions):
    return [
        Received(each.link, Pong(each.message.number, each.message.size_bytes))
        for each in actions
        if type(each) is Fill and type(each.message) is Ping
    ]


def opened(prober, number=1):
    prober.begin(Probe(number, 0.0, 0, TARGETS), 0.0)
    events = []
    for node, link in LINKS.items():
        events += pongs(prober.handle(Linked(link, node), 0.0))
    now_s = 0.0
    while events:
        now_s += 0.001
        events = [again for each in events for again in pongs(prober.handle(each, now_s))]
    return prober


def test_links_are_opened_and_their_round_trips_told():
    prober = Prober()
    actions = prober.begin(Probe(1, 0.0, 0, TARGETS), 0.0)
    assert actions == [Connect(each.node, each.addresses) for each in TARGETS]
    opened(prober := Prober())
    assert prober.outcome.number == 1
    assert prober.outcome.round_trip_s == pytest.approx(0.001)
    assert not prober.outcome.failed


def test_bytes_over_time_are_told():
    prober = opened(Prober())
    events, now_s = pongs(prober.begin(Probe(2, 0.3, 1 << 30, TARGETS), 1.0)), 1.0
    # A line of one megabyte per second that both share.
    while events:
        event = events.pop(0)
        now_s += event.message.size_bytes / 1e6
        events += pongs(prober.handle(event, now_s))
    assert prober.outcome.number == 2
    assert prober.outcome.bytes_per_s == pytest.approx(1e6, rel=0.05)
    assert now_s < 1.5


def test_no_more_bytes_pass_than_asked_for():
    prober = opened(Prober())
    events, now_s, total = pongs(prober.begin(Probe(2, 5.0, 1 << 20, TARGETS), 1.0)), 1.0, 0
    while events:
        event = events.pop(0)
        total += event.message.size_bytes
        now_s += event.message.size_bytes / 1e9
        events += pongs(prober.handle(event, now_s))
    assert prober.outcome.bytes_per_s == pytest.approx(1e9, rel=0.3)
    assert total < 2 * (1 << 20) + 8 * (256 << 10)


def test_a_server_that_cannot_be_reached_is_named():
    prober = Prober()
    prober.begin(Probe(1, 0.0, 0, TARGETS), 0.0)
    prober.handle(ConnectFailed(server(0), "refused"), 0.1)
    prober.handle(Linked(6, server(1)), 0.1)
    prober.handle(Lost(6, "reset"), 0.2)
    assert prober.outcome.failed == (server(0), server(1))


def test_silence_ends():
    prober = opened(Prober())
    prober.outcome = None
    prober.begin(Probe(2, 0.3, 1 << 20, TARGETS), 1.0)
    assert prober.due_s == pytest.approx(1.8)
    prober.tick(1.7)
    assert prober.outcome is None
    prober.tick(1.8)
    assert prober.outcome.bytes_per_s == 0.0
    assert prober.due_s is None


def test_links_close_when_the_job_begins_and_late_ones_too():
    prober = Prober()
    prober.begin(Probe(1, 0.0, 0, TARGETS), 0.0)
    prober.handle(Linked(5, server(0)), 0.1)
    assert prober.close() == [Close(5)]
    late = Linked(6, server(1))
    assert prober.concerns(late)
    assert prober.handle(late, 0.3) == [Close(6)]
    assert not prober.concerns(late)
    assert not prober.concerns(Linked(7, server(0)))
