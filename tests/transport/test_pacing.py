"""What the system takes in advance follows the link, and who goes first on it."""

import pytest

from bireme.transport.pacing import UNPACED, Pacing

MOST = 4 << 20


def test_of_an_unknown_link_the_system_takes_all_that_it_likes():
    assert UNPACED.backlog_bytes(1.0, MOST) == MOST
    assert Pacing(gives_way=True).backlog_bytes(0.0, MOST) == MOST


@pytest.mark.parametrize("gives_way", [False, True])
def test_a_faster_or_longer_link_takes_more_up_to_a_limit(gives_way):
    links = [Pacing(each, gives_way=gives_way) for each in (1e5, 1e8, 1e9, 1e12)]
    speeds = [each.backlog_bytes(0.0, MOST) for each in links]
    assert speeds == sorted(speeds)
    assert speeds[-1] == MOST
    trips = [links[1].backlog_bytes(each, MOST) for each in (0.0, 0.01, 0.1)]
    assert trips[0] < trips[1] == 2e6 < trips[2] == MOST


def test_who_gives_way_keeps_less_waiting_but_fills_a_long_link():
    for speed in (1e6, 25e6, 1e8):
        first, second = Pacing(speed), Pacing(speed, gives_way=True)
        assert second.backlog_bytes(0.0, MOST) < first.backlog_bytes(0.0, MOST)
        assert second.backlog_bytes(0.05, MOST) == min(MOST, int(0.1 * speed))


def test_a_slow_link_keeps_more_waiting_among_faster_ones():
    alone, like_others = Pacing(5e6), Pacing(5e6, 5.5e6)
    among_faster = Pacing(5e6, 25e6)
    assert alone.backlog_bytes(0.0, MOST) == like_others.backlog_bytes(0.0, MOST) == 25_000
    assert among_faster.backlog_bytes(0.0, MOST) == 64 << 10
    assert among_faster._replace(gives_way=True).backlog_bytes(0.0, MOST) == 64 << 10
    assert Pacing(25e6, 125e6).backlog_bytes(0.0, MOST) == Pacing(25e6).backlog_bytes(0.0, MOST)
