"""Slots: dealt, reused, forgotten, and understood by ranks that have not heard yet."""

from tests.core.negotiation.world import allreduce

from bireme.core.negotiation.slots import Slots


def learned(slots, since, name, **fields):
    return slots.assign(since, (0, 1), {0: allreduce(name, **fields)})


def test_a_slot_means_what_it_did_to_a_rank_that_has_not_heard():
    slots = Slots(1)
    first = learned(slots, 1, "a")
    assert slots.excess(0, 1) == []
    learned(slots, 2, "b")
    (gone,) = slots.excess(0, 2)
    assert gone is first
    third = learned(slots, 3, "c")
    assert third.slot == first.slot
    assert slots.meant(0, 1) is first
    assert slots.meant(0, 2) is None
    assert slots.meant(0, 3) is third
    assert slots.unclear == 0b1
    slots.forget_earlier([3, 1])
    assert slots.meant(0, 1) is first
    slots.forget_earlier([3, 3])
    assert slots.unclear == 0
    assert slots.meant(0, 1) is None


def test_an_operation_keeps_its_slot_when_it_changes():
    slots = Slots(4)
    before = learned(slots, 1, "a", shape=(2,))
    after = learned(slots, 2, "a", shape=(3,))
    assert before.slot == after.slot
    assert slots.find((0, "a")) is after
    assert slots.meant(0, 1) is before
    assert len(slots) == 1


def test_the_least_recently_used_goes_and_what_is_busy_stays():
    slots = Slots(2)
    for number, name in enumerate("abc", 1):
        learned(slots, number, name)
    slots.released(0b001)
    slots.released(0b110)
    slots.released(0b010)
    (gone,) = slots.excess(0b001, 4)
    assert gone.key == (0, "c")
    assert slots.excess(0, 4) == []


def test_many_releases_are_brought_up_to_date():
    slots = Slots(1)
    for number, name in enumerate("ab", 1):
        learned(slots, number, name)
    for _ in range(10_000):
        slots.released(0b01)
    assert len(slots._releases) < 5000
    assert slots.excess(0, 3)[0].key == (0, "b")


def test_groups_are_marked():
    slots = Slots(4)
    learned(slots, 1, "a")
    learned(slots, 2, "b", group="b", group_size=2)
    assert slots.grouped == 0b10
    assert slots.groups_in(0b11) == {("b", 2): [1]}
    assert slots.groups_in(0b01) == {}
    learned(slots, 3, "b")
    assert slots.grouped == 0
