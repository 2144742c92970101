import itertools

import pytest

from bireme.core.actions import Release, Send
from bireme.core.fetching import PATIENCE_S, Fetchings
from bireme.sim.relaying import FloatSums
from bireme.sim.values import pack
from bireme.wire.messages import Declined, Fetch, Pull, PullEntry, Value, ValueEntry

SERVER_LINK = 50
SLOTS = ((3, 0), (3, 1))


class Machine:
    """A relay's part in it, with workers 0 and 1 attached by the links 10 and 11."""

    def __init__(self, num_workers=2):
        self.workers = {10 + rank: rank for rank in range(num_workers)}
        self.link = SERVER_LINK
        self.fetchings = Fetchings(
            self.workers, lambda _: self.link, FloatSums(), itertools.count(100), 1.0
        )

    def ask(self, rank, now_s, request=None, version=4, slots=SLOTS):
        entries = tuple(PullEntry(*slot, lead) for lead, slot in enumerate(slots))
        request = 7 * rank + 1 if request is None else request
        message = Fetch(request, 1, 2, rank, version, 5, entries)
        return self.fetchings.ask(10 + rank, message, 1, now_s)

    def answer(self, request, *slots):
        entries = tuple(ValueEntry(*slot, 0, 8) for slot in slots)
        payload = pack([1.0] * len(slots))
        return self.fetchings.answer(Value(request, 1, 4, entries), payload)


def test_what_all_ask_for_is_asked_once_and_all_get_it():
    machine = Machine()
    assert machine.ask(0, 0.0) == []
    (question,) = machine.ask(1, 0.01)
    assert question.link == SERVER_LINK
    assert question.message == Pull(100, 1, 4, 5, (PullEntry(3, 0, 0), PullEntry(3, 1, 1)))
    assert machine.fetchings.is_waiting
    *sent, release = machine.answer(100, (3, 1))
    assert [(each.link, each.message.request) for each in sent] == [(10, 1), (11, 8)]
    assert isinstance(release, Release)
    assert len(machine.answer(100, (3, 0))) == 3
    assert not machine.fetchings.is_waiting
    assert machine.answer(100, (3, 0)) == []


def test_a_question_waits_for_the_others_a_moment_and_the_next_time_not_at_all():
    machine = Machine()
    assert machine.ask(0, 0.0) == []
    assert machine.fetchings.next_deadline_s() == PATIENCE_S
    assert len(machine.fetchings.tick(1, PATIENCE_S)) == 1
    machine.answer(100, *SLOTS)
    assert len(machine.ask(0, 1.0, request=2, version=5)) == 1
    machine.answer(101, *SLOTS)
    # Once others ask for the same soon after, it waits for them again.
    assert machine.ask(1, 1.05, version=5) == []
    assert len(machine.fetchings.tick(1, 1.05 + PATIENCE_S)) == 1


def test_other_slots_versions_and_servers_are_other_questions():
    machine = Machine()
    assert machine.ask(0, 0.0) == []
    assert machine.ask(1, 0.0, version=5) == []
    assert machine.ask(1, 0.0, request=9, slots=SLOTS[:1]) == []
    assert len(machine.fetchings.tick(1, PATIENCE_S)) == 3


def test_a_second_question_of_a_worker_lets_the_first_go():
    machine = Machine()
    machine.ask(0, 0.0)
    (first,) = machine.ask(0, 0.01, request=2)
    assert first.message.request == 100
    (second,) = machine.ask(1, 0.02)
    assert second.message.request == 101
    assert [each.link for each in machine.answer(100, *SLOTS)[:-1]] == [10]
    assert [each.link for each in machine.answer(101, *SLOTS)[:-1]] == [10, 11]


def test_a_question_that_is_repeated_stays_one():
    machine = Machine()
    machine.ask(0, 0.0)
    assert machine.ask(0, 0.01) == []
    machine.ask(1, 0.02)
    assert machine.ask(0, 0.03) == []
    assert len(machine.answer(100, *SLOTS)) == 3


def test_what_has_no_answer_is_asked_again_for_the_rest():
    machine = Machine()
    machine.ask(0, 0.0)
    machine.ask(1, 0.0)
    machine.answer(100, SLOTS[0])
    assert machine.fetchings.tick(1, 0.9) == []
    (again,) = machine.fetchings.tick(2, 1.0)
    assert again.message == Pull(100, 2, 5, 5, (PullEntry(3, 1, 0),))
    assert machine.fetchings.next_deadline_s() == pytest.approx(3.0)


@pytest.mark.parametrize("asked", [False, True])
def test_a_worker_that_is_gone_is_not_waited_for_nor_answered(asked):
    machine = Machine(3)
    machine.ask(0, 0.0)
    machine.ask(1, 0.0)
    if asked:
        machine.ask(2, 0.0)
    del machine.workers[12]
    actions = machine.fetchings.without(2, 1, 0.05)
    assert len(actions) == (0 if asked else 1)
    assert [each.link for each in machine.answer(100, *SLOTS)[:-1]] == [10, 11]


def test_questions_of_nobody_are_forgotten():
    machine = Machine()
    machine.ask(0, 0.0)
    del machine.workers[10]
    assert machine.fetchings.without(0, 1, 0.05) == []
    assert machine.fetchings.next_deadline_s() is None


def test_what_a_server_refuses_is_declined():
    machine = Machine()
    machine.ask(0, 0.0)
    machine.ask(1, 0.0)
    *told, _ = machine.fetchings.decline(100, "no such key")
    assert told == [Send(10, Declined(1, "no such key")), Send(11, Declined(8, "no such key"))]
    assert machine.fetchings.decline(100, "no such key") == []
    assert machine.fetchings.decline(None, "") == []


def test_a_server_out_of_reach_is_left_to_the_workers():
    machine = Machine()
    machine.link = None
    machine.ask(0, 0.0)
    assert machine.ask(1, 0.0) == []
    assert machine.fetchings.tick(1, 1.0) == []
    told = machine.fetchings.tick(1, 3.0)
    assert [type(each.message) for each in told[:-1]] == [Declined, Declined]


def test_a_link_that_is_up_again_is_asked_by():
    machine = Machine()
    machine.link = None
    machine.ask(0, 0.0)
    machine.ask(1, 0.0)
    machine.link = 51
    assert machine.fetchings.reached(7, 1, 0.5) == []
    (question,) = machine.fetchings.reached(2, 1, 0.5)
    assert question.link == 51
