from itertools import pairwise

from tests.core.nodes import FIRST_SERVER, entries, of, running_worker, sent

from bireme.core.actions import Send
from bireme.core.calls import BarrierCall, PullCall, PushCall
from bireme.core.events import Received, Tick
from bireme.wire.messages import (
    Barrier,
    Pull,
    Push,
    RoundEntry,
    Rounds,
    RoundsReply,
)


def later(core, *times_s):
    """Tick at each time; the scheduler is not silent meanwhile."""
    actions = []
    for time_s in times_s:
        core._member._heard_s = time_s
        actions += core.handle(Tick(), time_s)
    return actions


def test_a_pull_without_an_answer_is_asked_again_at_growing_intervals():
    core = running_worker()
    core.handle(PullCall(5, ((0, 0),), 200.0), 0.0)
    times = []
    for second in range(1, 100):
        times += [second] * len(sent(later(core, float(second)), Pull))
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] in (5, 6)
    assert gaps == sorted(gaps)
    assert max(gaps) <= 45


def test_a_push_without_an_answer_is_asked_about_and_sent_only_if_it_is_missing():
    core = running_worker()
    (push,) = sent(core.handle(PushCall(5, entries(0, 1), 200.0), 0.0))
    (ask,) = sent(later(core, 7.0), Rounds)
    assert ask.key_ids == (0, 1)

    def reply(*standing):
        found = tuple(RoundEntry(key, 0, number, version) for key, number, version in standing)
        return core.handle(Received(FIRST_SERVER, RoundsReply(ask.request, 1, found)), 7.1)

    assert reply((0, 1, 0), (1, 1, 0)) == [], "it has arrived, the round is open"
    (ask,) = sent(later(core, 30.0), Rounds)
    assert sent(reply((0, 1, 0), (1, 0, 0)), Push)[0].request == push.request
    (ask,) = sent(later(core, 60.0), Rounds)
    assert sent(reply((0, 1, 1), (1, 1, 0)), Push), "its answer was lost"
    (ask,) = sent(later(core, 100.0), Rounds)
    assert sent(reply((0, 1, 0)), Push), "the server knows nothing of a slot"


def test_a_question_about_pushes_does_not_overtake_them():
    core = running_worker()
    core.handle(PushCall(5, entries(0), 200.0, priority=-4), 0.0)
    core.handle(PushCall(6, entries(1), 200.0, priority=-9), 0.0)
    (ask,) = [each for each in of(later(core, 7.0), Send) if isinstance(each.message, Rounds)]
    assert ask.priority == -9


def test_questions_to_the_scheduler_are_repeated():
    core = running_worker()
    core.handle(BarrierCall(5, "b", 200.0), 0.0)
    assert sent(later(core, 7.0), Barrier) == [Barrier("b", 0)]


def test_nothing_is_due_when_nothing_is_open():
    core = running_worker()
    core.handle(PullCall(5, ((0, 0),), 1.0), 0.0)
    later(core, 1.0, 2.0, 4.0, 8.0, 16.0)
    assert core._desk.requests == {}
    assert core._desk.next_deadline_s() is None


def test_slots_of_one_server_travel_together_up_to_the_bundles_size():
    core = running_worker(num_keys=10, bundle_bytes=32)
    pushes = sent(core.handle(PushCall(5, entries(*range(10)), 9.0), 0.0), Push)
    assert [len(push.entries) for push in pushes] == [4, 4, 2]


def test_servers_take_turns():
    core = running_worker(num_servers=2, num_keys=8, bundle_bytes=8)
    actions = core.handle(PushCall(5, entries(0, 2, 4, 6, 1, 3, 5, 7), 9.0), 0.0)
    links = [each.link for each in of(actions, Send)]
    assert links == [2, 3] * 4


def test_a_slot_larger_than_a_bundle_travels_alone():
    core = running_worker(num_keys=3, bundle_bytes=10)
    big = entries(0, size=8) + entries(1, size=100) + entries(2, size=8)
    pushes = sent(core.handle(PushCall(5, big, 9.0), 0.0), Push)
    assert [len(push.entries) for push in pushes] == [1, 1, 1]
