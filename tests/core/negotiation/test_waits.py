"""Waits are told when they are due, and again."""

from bireme.core.negotiation.waits import Waits


def test_batches_wait_from_when_they_came():
    waits = Waits(10.0)
    waits.slots(0b011, 0.0)
    waits.slots(0b111, 4.0)
    assert waits.deadline_s() == 10.0
    found = waits.overdue(10.0)
    assert found.slots == [(0, 10.0), (1, 10.0)]
    assert waits.deadline_s() == 14.0
    found = waits.overdue(20.0)
    assert found.slots == [(0, 20.0), (1, 20.0), (2, 16.0)]
    assert found.longest_s == 20.0


def test_what_ran_and_comes_back_waits_anew():
    waits = Waits(10.0)
    waits.slots(0b1, 0.0)
    waits.ended(0b1)
    waits.slots(0b1, 5.0)
    assert waits.deadline_s() == 15.0
    waits.slots(0b0, 6.0)
    assert waits.deadline_s() is None


def test_names_wait_too():
    waits = Waits(10.0)
    waits.name((0, "a"), 1.0)
    waits.name((0, "a"), 5.0)
    assert waits.deadline_s() == 11.0
    assert waits.overdue(11.0).keys == [((0, "a"), 10.0)]
    waits.name_ended((0, "a"))
    assert waits.deadline_s() is None


def test_nothing_is_told_without_an_interval():
    waits = Waits(0.0)
    waits.slots(0b1, 0.0)
    waits.name((0, "a"), 0.0)
    assert waits.deadline_s() is None
    assert waits.overdue(1e9).slots == waits.overdue(1e9).keys == []
