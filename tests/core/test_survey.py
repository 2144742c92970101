import pytest

from bireme.core.survey import Survey, is_worthwhile
from bireme.types.nodes import server, worker
from bireme.wire.messages import JobConfig, NodeInfo, Probed

CONFIG = JobConfig(2, 2, 2)


def info(node, host, mbps=0.0):
    return NodeInfo(node, 2, host, 1, ("tcp://x",), link_mbps=mbps)


def four(**mbps):
    return [
        info(server(0), "a", mbps.get("a", 0.0)),
        info(server(1), "b"),
        info(worker(0), "a"),
        info(worker(1), "b"),
    ]


def asked(survey):
    messages, survey.messages = survey.messages, []
    return messages


def run(survey, speed_of, now_s=0.0, round_trip_s=0.001):
    """Answer everything; return how many rounds there were."""
    rounds = 0
    while not survey.done:
        rounds += 1
        now_s += 0.1
        for node, probe in asked(survey):
            speed = speed_of(node, probe, rounds) * 1e6 / 8
            survey.take(node, Probed(probe.number, speed, round_trip_s), now_s)
    return rounds


def test_links_are_measured_only_where_it_tells_something():
    assert is_worthwhile(four(), CONFIG)
    assert is_worthwhile(four(a=50.0), CONFIG)
    assert not is_worthwhile(four(), JobConfig(2, 2, 2, link_probe=False))
    assert not is_worthwhile([info(server(0), "a"), info(worker(0), "a")], CONFIG)
    stated = [info(server(0), "a", 50.0), info(worker(0), "a"), info(worker(1), "b", 10.0)]
    assert not is_worthwhile(stated, CONFIG)


def test_equal_links_take_one_pass():
    survey = Survey(four(), 0, 0.0)
    assert run(survey, lambda *_: 50.0) == 3
    assert survey.speeds() == {"a": 50.0, "b": 50.0}


def test_what_seems_slow_is_measured_again_and_the_best_counts():
    survey = Survey(four(), 0, 0.0)
    # The second round is of b's link; a processor was busy then.
    assert run(survey, lambda _node, _probe, number: 20.0 if number == 3 else 50.0) == 4
    assert survey.speeds() == {"a": 50.0, "b": 50.0}


def test_a_link_that_is_slow_three_times_is_slow():
    survey = Survey(four(), 0, 0.0)
    slow = {3, 4, 5}
    assert run(survey, lambda _node, _probe, number: 20.0 if number in slow else 50.0) == 5
    assert survey.speeds() == {"a": 50.0, "b": 20.0}


def test_fast_links_are_not_told_apart():
    survey = Survey(four(), 0, 0.0)
    run(survey, lambda _node, _probe, number: 3000.0 * number)
    assert survey.speeds() == {}


def test_a_stated_link_is_not_measured():
    survey = Survey(four(a=50.0), 0, 0.0)
    assert run(survey, lambda *_: 9000.0) == 2
    assert survey.speeds() == {"b": 2400.0}


def test_flows_of_several_machines_add_up():
    infos = [info(server(0), "s"), *(info(worker(rank), f"w{rank}") for rank in range(3))]
    survey = Survey(infos, 0, 0.0)

    def speed(node, probe, number):
        # First the server's link, which three fill.
        return 30.0 if number == 2 else 50.0

    run(survey, speed)
    assert survey.measured["s"] == pytest.approx(90.0)
    assert survey.measured["w0"] == pytest.approx(50.0)


@pytest.mark.parametrize("silent_from", [1, 2])
def test_it_ends_although_nobody_answers(silent_from):
    survey = Survey(four(), 7, 0.0)
    now_s, rounds = 0.0, 0
    while not survey.done:
        rounds += 1
        for node, probe in asked(survey):
            assert probe.number > 7
            if rounds < silent_from:
                survey.take(node, Probed(probe.number, 0.0, 0.001), now_s)
        if survey.done:
            break
        now_s = max(now_s, survey.due_s)
        survey.tick(now_s)
    assert now_s < 10.0
    assert survey.speeds() == {}


def test_late_answers_and_strangers_are_ignored():
    survey = Survey(four(), 0, 0.0)
    node, probe = asked(survey)[0]
    survey.take(node, Probed(probe.number + 1, 1e6, 0.001), 0.1)
    survey.take(worker(9), Probed(probe.number, 1e6, 0.001), 0.1)
    assert not asked(survey)


@pytest.mark.parametrize(
    ("answer", "why"),
    [((0.0, 0.05), "round trip takes 50 ms"), ((0.0, 0.0, (server(1),)), "cannot be reached")],
)
def test_what_cannot_be_measured_is_said(answer, why):
    survey = Survey(four(), 0, 0.0)
    for node, probe in asked(survey):
        survey.take(node, Probed(probe.number, *answer), 0.1)
    assert survey.done
    assert why in survey.notes[0].text
    assert not survey.speeds()
