"""Which slots that all ranks have submitted can run, and which cannot. PURE.

Used by the coordinator, which tells the ranks.
"""

from collections.abc import Collection

from bireme.core.negotiation.agreement import not_with_join
from bireme.core.negotiation.messages import Kind, bits
from bireme.core.negotiation.sets import ProcessSet
from bireme.core.negotiation.slots import Slots

__all__ = ("Refusal", "joinable", "whole_groups")

Refusal = tuple[int, str]
"""A mask of slots that cannot run, and why."""


def joinable(slots: Slots, joined: Collection[int], ready: int) -> tuple[int, list[Refusal]]:
    """Return the part of ``ready`` that ranks without data can take part in, and the rest.

    Args:
        slots: What the slots stand for.
        joined: Ranks without data.
        ready: Mask of slots that all others have submitted.
    """
    refusals: list[Refusal] = []
    for slot in bits(ready):
        meaning = slots.at(slot)
        if meaning is not None and meaning.request.kind is not Kind.ALLREDUCE:
            ready &= ~(1 << slot)
            refusals.append((1 << slot, not_with_join(meaning.request, joined)))
    return ready, refusals


def whole_groups(slots: Slots, within: ProcessSet, ready: int) -> tuple[int, list[Refusal]]:
    """Return ``ready`` without groups that lack members, and what fails with its group.

    Args:
        slots: What the slots stand for.
        within: Notes how many members of a group that failed in part are left.
        ready: Mask of slots that all ranks of the set have submitted.
    """
    refusals: list[Refusal] = []
    for (name, size), members in slots.groups_in(ready).items():
        mask = sum(1 << slot for slot in members)
        doom = within.doomed.get(name)
        if doom is not None:
            refusals.append((mask, doom.message))
            within.doom(name, doom.message, doom.num_left - len(members))
        if doom is not None or len(members) < size:
            ready &= ~mask
    return ready, refusals
