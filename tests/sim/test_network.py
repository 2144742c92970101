import pytest

from bireme.core.events import ConnectFailed, Linked, Lost, Received
from bireme.errors import BiremeError, ConfigError
from bireme.sim.clock import Clock
from bireme.sim.network import Faults, Network
from bireme.types.nodes import server
from bireme.wire.messages import Heartbeat, Push, PushEntry


class Box:
    def __init__(self):
        self.events = []
        self.alive = True

    def receive(self, event):
        self.events.append(event)

    def messages(self):
        return [each.message.sent_s for each in self.events if isinstance(each, Received)]


@pytest.fixture
def clock():
    return Clock()


def connected(clock, **faults):
    network = Network(clock, seed=1, faults=Faults(**faults))
    near, far = Box(), Box()
    network.connect(near, server(0), far)
    clock.run(clock.now_s + 1.0)
    assert isinstance(near.events[0], Linked)
    return network, near, far, near.events[0].link


def send_many(clock, number=200, **faults):
    network, _, far, link = connected(clock, **faults)
    for position in range(number):
        network.send(link, Heartbeat(float(position)), ())
    clock.run(clock.now_s + 10.0)
    return far.messages()


def test_a_good_network_keeps_all_and_their_order(clock):
    assert send_many(clock) == [float(i) for i in range(200)]


def test_delays_alone_do_not_reorder(clock):
    assert send_many(clock, most_delay_s=0.5) == [float(i) for i in range(200)]


def test_reorder_drop_duplicate(clock):
    late = send_many(clock, most_delay_s=0.5, reorder=True)
    assert late != sorted(late)
    assert sorted(late) == [float(i) for i in range(200)]
    assert 100 < len(send_many(clock, drop=0.3)) < 170
    assert 230 < len(send_many(clock, duplicate=0.3)) < 290


def test_the_same_seed_gives_the_same_run(clock):
    faults = {"drop": 0.3, "duplicate": 0.3, "most_delay_s": 0.5, "reorder": True}
    assert send_many(clock, **faults) == send_many(Clock(), **faults)


def test_nobody_there(clock):
    network, box = Network(clock), Box()
    network.connect(box, server(0), None)
    clock.run(1.0)
    assert box.events == [ConnectFailed(server(0), "connection refused")]


def test_a_closed_link_delivers_what_was_sent_and_then_says_so(clock):
    network, near, far, link = connected(clock, most_delay_s=0.5)
    network.send(link, Heartbeat(1.0), ())
    network.close(link)
    network.send(link, Heartbeat(2.0), ())
    clock.run(clock.now_s + 5.0)
    assert far.messages() == [1.0]
    assert isinstance(far.events[-1], Lost)
    assert not any(isinstance(each, Lost) for each in near.events)
    assert network.links_of(near) == network.links_of(far) == []


def test_a_cut_link_loses_what_is_under_way_and_tells_both(clock):
    network, near, far, link = connected(clock)
    network.send(link, Heartbeat(1.0), ())
    network.cut(link)
    clock.run(clock.now_s + 5.0)
    assert far.messages() == []
    assert isinstance(near.events[-1], Lost)
    assert isinstance(far.events[-1], Lost)


def test_payloads_arrive_in_one_piece(clock):
    network, _, far, link = connected(clock)
    entries = (PushEntry(0, 0, 0, 2), PushEntry(1, 0, 0, 1))
    message = Push(0, 1, 0, 0, 1, 1.0, False, False, 0, 0, entries)
    network.send(link, message, (b"ab", b"c"))
    clock.run(clock.now_s + 1.0)
    assert far.events[-1].payload == b"abc"
    with pytest.raises(BiremeError, match="3 bytes"):
        network.send(link, message, (b"ab",))


@pytest.mark.parametrize(
    "wrong", [{"drop": 1.0}, {"duplicate": -0.1}, {"least_delay_s": 2.0, "most_delay_s": 1.0}]
)
def test_impossible_faults_are_refused(wrong):
    with pytest.raises(ConfigError):
        Faults(**wrong)
