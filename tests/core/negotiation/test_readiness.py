"""Readiness: what can run of what all ranks have submitted."""

import pytest
from tests.core.negotiation.world import allreduce

from bireme.core.negotiation.messages import Kind, Request
from bireme.core.negotiation.readiness import joinable, whole_groups
from bireme.core.negotiation.sets import ProcessSet
from bireme.core.negotiation.slots import Slots


def slots_of(*requests):
    slots = Slots(8)
    for request in requests:
        slots.assign(1, (0, 1), {0: request, 1: request})
    return slots


def grouped(number, size=2):
    return allreduce(f"g.{number}", group="g", group_size=size)


def test_ranks_without_data_take_part_in_sums_only():
    slots = slots_of(allreduce("a"), Request("b", Kind.BROADCAST), allreduce("c"))
    ready, refusals = joinable(slots, [1], 0b111)
    assert ready == 0b101
    ((mask, reason),) = refusals
    assert mask == 0b010
    assert reason == "broadcast is not supported with Join at this time: rank 1 joined"
    assert joinable(slots, [1], 0b101) == (0b101, [])


@pytest.mark.parametrize(
    ("submitted", "ready"), [(0b111, 0b111), (0b011, 0b001), (0b101, 0b001), (0b001, 0b001)]
)
def test_a_group_waits_for_its_last_member(submitted, ready):
    slots = slots_of(allreduce("alone"), grouped(0), grouped(1))
    assert whole_groups(slots, ProcessSet(0, (0, 1)), submitted) == (ready, [])


def test_what_is_left_of_a_group_that_failed_in_part_fails_with_it():
    slots = slots_of(allreduce("alone"), grouped(0, 3), grouped(1, 3))
    group = ProcessSet(0, (0, 1))
    group.doom("g", "wrong", 2)
    assert whole_groups(slots, group, 0b011) == (0b001, [(0b010, "wrong")])
    assert group.doomed["g"].num_left == 1
    assert whole_groups(slots, group, 0b101) == (0b001, [(0b100, "wrong")])
    assert not group.doomed
