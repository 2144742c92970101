"""Tallies: names counted apart from their slots."""

import pytest
from tests.core.negotiation.world import allreduce

from bireme.core.negotiation.pending import Pending
from bireme.core.negotiation.slots import Slots
from bireme.core.negotiation.tallies import Tallies
from bireme.core.negotiation.waits import Waits


class Desk:
    """What two ranks have said of the names a, in slot 0, and b, in slot 1."""

    def __init__(self):
        self.slots, self.pending, self.waits = Slots(4), Pending(2), Waits(60.0)
        self.tallies = Tallies(self.slots, self.pending, self.waits)
        for name in ("a", "b"):
            request = allreduce(name)
            self.slots.assign(1, (0, 1), {0: request, 1: request})

    def open(self, request, now_s=0.0):
        return self.tallies.open(request, self.slots.find(request.key), now_s)


@pytest.fixture
def desk():
    return Desk()


def test_a_new_name_is_counted_until_it_is_closed(desk):
    request = allreduce("new")
    tally = desk.open(request, now_s=5.0)
    desk.tallies.count(tally, 1, request)
    assert desk.tallies.find(request.key) is tally
    assert (tally.first, tally.requests) == (request, {1: request})
    assert len(desk.tallies) == 1
    assert desk.waits.deadline_s() == 65.0
    desk.tallies.close(request.key)
    assert desk.tallies.find(request.key) is None
    assert desk.waits.deadline_s() is None


def test_ranks_that_reported_its_slot_have_submitted_what_that_means(desk):
    desk.pending.add(0, 0b11)
    other = allreduce("a", shape=(3,))
    tally = desk.open(other)
    assert tally.requests == {0: allreduce("a")}
    assert desk.pending.union() == 0b10
    assert desk.tallies.split == 0b01
    desk.open(allreduce("b"))
    desk.tallies.close(other.key)
    assert desk.tallies.split == 0b10


def test_candidates_are_what_has_changed(desk):
    first, second = allreduce("first"), allreduce("second", process_set=3)
    for request in (first, second):
        desk.tallies.count(desk.open(request), 0, request)
    assert desk.tallies.take_candidates() == [first.key, second.key]
    assert not desk.tallies.candidates
    desk.tallies.look_again()
    assert desk.tallies.take_candidates() == [first.key, second.key]
    assert desk.tallies.of_set(3) == [second.key]
