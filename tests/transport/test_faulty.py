"""Faults come as their seed says, and none comes unasked."""

from collections import Counter

import pytest

from bireme.errors import ConfigError
from bireme.transport.base import Arrived, Closed, Frame
from bireme.transport.faulty import Faults, FaultyTransport
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.wire.header import write_header


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def frame(number: int) -> Frame:
    body = number.to_bytes(4, "little")
    return Frame(write_header(1, body, 3) + body, [b"abc"])


class World:
    def __init__(self, faults: Faults, seed: int = 7) -> None:
        self.clock = Clock()
        hub = InprocHub()
        self.server = InprocTransport(hub)
        self.faulty = FaultyTransport(InprocTransport(hub), faults, seed=seed, clock=self.clock)
        self.link = self.faulty.connect(self.server.listen("inproc://server"), 1)
        self.sent: Counter[int] = Counter()
        self.faulty.poll(0)

    def send(self, count: int) -> None:
        for number in range(count):
            self.link.send(frame(number), 0, lambda n=number: self.sent.update([n]))

    def arrived(self) -> list[int]:
        numbers = []
        for event in self.server.poll(0):
            if isinstance(event, Arrived):
                numbers.append(int.from_bytes(event.frame.head[-4:], "little"))
                event.frame.release()
        return numbers

    def close(self) -> None:
        self.faulty.close()
        self.server.close()


def fates(faults: Faults, seed: int) -> list[int]:
    world = World(faults, seed)
    world.send(200)
    world.clock.now_s += 1
    world.faulty.poll(0)
    arrived = world.arrived()
    world.close()
    return arrived


def test_the_seed_decides() -> None:
    faults = Faults(drop=0.1, duplicate=0.1, delay=0.1, reorder=0.1)
    assert fates(faults, 1) == fates(faults, 1) != fates(faults, 2)


def test_dropped_frames_do_not_arrive_and_free_their_memory() -> None:
    world = World(Faults(drop=0.5))
    world.send(200)
    arrived = world.arrived()
    assert 60 < len(arrived) < 140
    assert arrived == sorted(set(arrived))
    assert world.sent == Counter(range(200))
    world.close()


def test_duplicated_frames_arrive_twice_and_report_once() -> None:
    world = World(Faults(duplicate=0.5))
    world.send(200)
    counts = Counter(world.arrived())
    assert set(counts) == set(range(200))
    assert set(counts.values()) == {1, 2}
    assert world.sent == Counter(range(200))
    world.close()


def test_delayed_frames_arrive_when_they_are_due() -> None:
    world = World(Faults(delay=1.0, longest_delay_s=5))
    world.send(100)
    world.faulty.poll(0)
    assert world.arrived() == []
    world.clock.now_s += 2.5
    world.faulty.poll(0)
    early = world.arrived()
    assert 20 < len(early) < 80
    world.clock.now_s += 2.5
    world.faulty.poll(0)
    assert sorted(early + world.arrived()) == list(range(100))
    world.close()


def test_reordered_frames_change_places_with_the_next() -> None:
    world = World(Faults(reorder=0.3))
    world.send(100)
    world.clock.now_s += 1
    world.faulty.poll(0)
    arrived = world.arrived()
    assert sorted(arrived) == list(range(100)) != arrived
    world.close()


def test_cut_links_close_on_both_sides() -> None:
    world = World(Faults(cut=1.0))
    world.link.send(frame(1))
    closed = [event for event in world.faulty.poll(1) if isinstance(event, Closed)]
    assert closed == [Closed(world.link, "cut by the fault injection", False)]
    assert isinstance(world.server.poll(1)[-1], Closed)
    world.close()


@pytest.mark.parametrize(
    "rates", [{"drop": -0.1}, {"drop": 0.6, "delay": 0.6}, {"longest_delay_s": -1.0}]
)
def test_impossible_rates_are_refused(rates: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Faults(**rates)
