import pytest

from bireme.errors import ConfigError
from bireme.sim.clock import Clock


def test_time_jumps_and_ties_keep_their_order():
    clock, seen = Clock(), []
    clock.after(2.0, seen.append, 1)
    clock.after(2.0, seen.append, 2)
    clock.after(1.0, lambda: clock.after(0.5, lambda: seen.append(clock.now_s)))
    clock.run(10.0)
    assert seen == [1.5, 1, 2]
    assert clock.now_s == 10.0


def test_it_stops_when_done_and_goes_on():
    clock, seen = Clock(), []
    for time_s in (1.0, 2.0, 3.0):
        clock.at(time_s, seen.append, time_s)
    clock.run(10.0, done=lambda: len(seen) == 2)
    assert clock.now_s == 2.0
    clock.run(10.0)
    assert seen == [1.0, 2.0, 3.0]


def test_the_past_is_now():
    clock, seen = Clock(), []
    clock.run(5.0)
    clock.at(1.0, lambda: seen.append(clock.now_s))
    clock.run(6.0)
    assert seen == [5.0]
    with pytest.raises(ConfigError, match="delay"):
        clock.after(-1.0, seen.append)
