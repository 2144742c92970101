from functools import partial

import pytest

from bireme.errors import ConfigError
from bireme.sim.clock import Clock
from bireme.sim.wires import Wires

SIZE = 125_000 - 100


def arrivals(wires, clock, *routes):
    seen = {}
    for number, (source, target) in enumerate(routes):
        wires.carry(
            source, target, SIZE, partial(lambda n: seen.setdefault(n, clock.now_s), number)
        )
    clock.run(60.0)
    return [pytest.approx(seen[number]) for number in range(len(routes))]


def test_messages_of_one_machine_leave_one_after_the_other():
    clock = Clock()
    wires = Wires(clock, {"a": 1.0})
    assert arrivals(wires, clock, ("a", "b"), ("a", "c")) == [1.0, 2.0]


def test_messages_to_one_machine_arrive_one_after_the_other():
    clock = Clock()
    wires = Wires(clock, {"c": 1.0})
    assert arrivals(wires, clock, ("a", "c"), ("b", "c")) == [1.0, 2.0]


def test_both_directions_are_apart_and_a_machine_does_not_wait_for_itself():
    clock = Clock()
    wires = Wires(clock, {"a": 1.0})
    assert arrivals(wires, clock, ("a", "b"), ("b", "a"), ("a", "a")) == [1.0, 1.0, 0.0]


def test_an_idle_link_passes_a_burst_at_once_and_only_once():
    clock = Clock()
    wires = Wires(clock, {"a": 1.0}, burst_bytes=SIZE + 100)
    clock.run(10.0)
    assert arrivals(wires, clock, ("a", "b"), ("a", "b")) == [10.0, 11.0]


def test_a_link_without_speed_is_refused():
    with pytest.raises(ConfigError, match="link of a must be > 0"):
        Wires(Clock(), {"a": 0.0})
