"""Payloads leave one after the other, by priority and order, whatever their links do."""

import random
import threading

import pytest

from bireme.errors import PeerLost
from bireme.node.egress import Egress
from bireme.transport.base import Frame


class SlowLink:
    """Takes every frame and says that it has left when told to."""

    def __init__(self, log, *, closed=False, remote="tcp:10.0.0.2:7"):
        self.log = log
        self.remote = remote
        self.closed = closed
        self.under_way = []

    def send(self, frame, priority=0, on_sent=None):
        if self.closed:
            raise PeerLost("closed")
        self.log.append(frame.head)
        self.under_way.append(on_sent)

    def leave(self):
        self.under_way.pop(0)()


class FastLink(SlowLink):
    """Writes at once."""

    def send(self, frame, priority=0, on_sent=None):
        super().send(frame, priority, on_sent)
        self.leave()


def frame(name, size=10):
    return Frame(name, [bytearray(size)])


def nothing():
    pass


def test_one_at_a_time_in_order_over_all_links():
    log = []
    first, second = SlowLink(log), SlowLink(log)
    egress = Egress(10)
    for name, link in ((b"1", first), (b"2", second), (b"3", first)):
        egress.send(link, frame(name), 0, nothing)
    assert log == [b"1"]
    first.leave()
    assert log == [b"1", b"2"]
    second.leave()
    assert log == [b"1", b"2", b"3"]
    assert egress.waiting == 0


def test_what_is_urgent_overtakes_what_waits_for_other_links():
    log = []
    link, other = SlowLink(log), SlowLink(log)
    egress = Egress(10)
    egress.send(link, frame(b"under way"), 0, nothing)
    egress.send(link, frame(b"late"), 0, nothing)
    egress.send(other, frame(b"urgent"), 5, nothing)
    link.leave()
    assert log == [b"under way", b"urgent"]


def test_small_frames_leave_together_up_to_the_budget():
    log = []
    link = SlowLink(log)
    egress = Egress(25)
    for name in (b"1", b"2", b"3"):
        egress.send(link, frame(name), 0, nothing)
    assert log == [b"1", b"2"]


def test_a_frame_above_the_budget_goes_alone():
    log = []
    link = SlowLink(log)
    egress = Egress(5)
    egress.send(link, frame(b"1", 100), 0, nothing)
    egress.send(link, frame(b"2", 1), 0, nothing)
    assert log == [b"1"]
    link.leave()
    assert log == [b"1", b"2"]


def test_frames_of_a_closed_link_are_dropped_and_told():
    log, told = [], []
    egress = Egress(10)
    egress.send(SlowLink(log, closed=True), frame(b"lost"), 0, lambda: told.append("lost"))
    link = SlowLink(log)
    egress.send(link, frame(b"next"), 0, lambda: told.append("next"))
    assert (log, told) == ([b"next"], ["lost"])


def test_a_thousand_frames_need_no_deep_stack():
    log, told = [], []
    link, gate = FastLink(log), SlowLink(log)
    egress = Egress(10)
    egress.send(gate, frame(b"gate"), 0, nothing)
    for number in range(5000):
        egress.send(link, frame(b"%d" % number), 0, lambda: told.append(1))
    gate.leave()
    assert len(told) == 5000


def test_what_stays_on_this_machine_keeps_its_turn_and_uses_nothing_up():
    log = []
    away, here = SlowLink(log), SlowLink(log, remote="shm:/tmp/socket")
    egress = Egress(10)
    names = (b"1 away", b"2 here", b"3 here", b"4 away", b"5 here", b"6 away")
    for name in names:
        egress.send(away if name.endswith(b"away") else here, frame(name), 0, nothing)
    assert log == [b"1 away", b"2 here", b"3 here"]
    away.leave()
    assert log == list(names[:5])
    here.leave()
    assert log == list(names[:5])
    away.leave()
    assert log == list(names)


@pytest.mark.parametrize("seed", range(5))
def test_many_threads_lose_and_double_nothing(seed):
    log, told = [], []
    random.seed(seed)
    egress = Egress(30)
    links = [FastLink(log) for _ in range(3)]

    def send(start):
        for number in range(start, start + 300):
            size = random.choice([1, 10, 50])
            egress.send(links[number % 3], frame(b"%d" % number, size), number % 2, told_of(number))

    def told_of(number):
        return lambda: told.append(number)

    threads = [threading.Thread(target=send, args=(300 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == list(range(1200))
    assert sorted(map(int, log)) == list(range(1200))
    assert egress.waiting == 0
