"""Slots that are always pushed together, taken for one while that is so.

A worker pushes the same slots by the same message in every step. Once a server has seen that, it
keeps one ledger, one open round and one run of memory for all of them, and a message costs as much
as one slot. As soon as one of them is touched in any other way, the group is parted and each slot
stands where it would stand without it. Called by :mod:`bireme.core.shelf`.
"""

from collections.abc import Mapping, Sequence

from bireme.consistency.sync import SyncLedger
from bireme.core.slots import Slot
from bireme.core.values import SlotValues
from bireme.errors import BiremeError
from bireme.types.choices import Layout
from bireme.wire.messages import Pull, PullEntry, PushEntry, SlotRound, ValueEntry

__all__ = ("Group", "Groups")

_Key = tuple[int, int]
_RAW = "raw"
_FEW_USES = 2
_MANY_USES = 1 << 12
_LASTING_ROUNDS = 8
_MOST_PLANS = 1 << 14


class Group(Slot):
    """Several slots as one: its ledger, sum and waits are those of each member.

    Args:
        members: The slots, in the order of their bytes in the payload.
        leads: How far the version of each is above the least one.
        entries: Those of the message that pushes them.
        cell: What ``SlotValues.join`` made of the members' cells.
        version: The least of the members' versions.
    """

    __slots__ = ("_entries", "entry", "formed_at", "leads", "members", "plan")

    def __init__(
        self,
        members: Sequence[Slot],
        leads: Sequence[int],
        entries: Sequence[PushEntry],
        cell: object,
        version: int,
    ) -> None:
        first = members[0]
        super().__init__(first.key_id, first.index, first.store, cell, SyncLedger(version))
        self.members = tuple(members)
        self.leads = tuple(leads)
        self.formed_at = version
        self.plan: _Plan | None = None
        total_bytes = sum([entry.payload_bytes for entry in entries])
        self.entry = PushEntry(first.key_id, first.index, 0, total_bytes)
        self._entries = tuple(
            ValueEntry(entry.key_id, entry.index, entry.lead, entry.payload_bytes)
            for entry in entries
        )

    def entries_alone(self, size_bytes: int, encoding: str) -> tuple[ValueEntry, ...]:
        """Return the entries of a message with the values of all members."""
        return self._entries

    def names(self, number: int) -> tuple[SlotRound, ...]:
        """Return one round of every member, for messages."""
        return tuple(
            SlotRound(slot.key_id, slot.index, number + lead)
            for slot, lead in zip(self.members, self.leads, strict=True)
        )


class _Plan:
    """What is known of one list of entries."""

    __slots__ = ("group", "patience", "uses")

    def __init__(self) -> None:
        self.group: Group | None = None
        self.uses = 0
        """Messages since there was a group."""
        self.patience = _FEW_USES
        """So many must come before there is one again."""


class _PullPlan:
    """What one list of a pull's entries means, as long as no group is formed or parted."""

    __slots__ = ("generation", "units")

    def __init__(self, generation: int, units: list[tuple[Slot | _Key, int]]) -> None:
        self.generation = generation
        self.units = units


class Groups:
    """Forms groups and parts them.

    Args:
        values: The arithmetic.
        slots: The slots of the server, kept by the owner.

    Guarantees:
        A slot is in one group at most. A group that is parted soon after it was formed is formed
        again only after twice as many messages, so that changing habits cost little.
    """

    def __init__(self, values: SlotValues, slots: Mapping[_Key, Slot]) -> None:
        self._values = values
        self._slots = slots
        self._known: dict[int, tuple[object, _Plan]] = {}
        self._plans: dict[tuple[PushEntry, ...], _Plan] = {}
        self._pulls: dict[int, tuple[object, _PullPlan]] = {}
        self._generation = 0

    def of(self, entries: tuple[PushEntry, ...]) -> Group | None:
        """Return the group that a push of these entries is for, formed now if it is time."""
        known = self._known.get(id(entries))
        plan = known[1] if known is not None else self._look(entries)
        if plan.group is not None:
            return plan.group
        plan.uses += 1
        if plan.uses > plan.patience:
            self._form(plan, entries)
        return plan.group

    def formed(self, entries: tuple[PushEntry, ...]) -> Group | None:
        """Return the group of these entries if there is one."""
        known = self._known.get(id(entries))
        return None if known is None else known[1].group

    def units(self, message: Pull) -> list[tuple[Slot | _Key, int]]:
        """Return what a pull asks for: slots, groups, and names of slots that are not there.

        Each with what the message's ``min_version`` is to be raised by. A group of which less is
        wanted, or at other versions, is parted.
        """
        entries = message.entries
        known = self._pulls.get(id(entries))
        if known is not None and known[1].generation == self._generation:
            return known[1].units
        units = self._units(entries)
        if len(self._pulls) >= _MOST_PLANS:
            self._pulls.clear()
        self._pulls[id(entries)] = entries, _PullPlan(self._generation, units)
        return units

    def slots_changed(self) -> None:
        """Note that there is a new slot."""
        self._generation += 1

    def part(self, group: Group) -> None:
        """End a group: its members stand where it stood."""
        plan, self._generation = group.plan, self._generation + 1
        if plan is not None:
            lasted = group.ledger.version - group.formed_at >= _LASTING_ROUNDS
            plan.patience = _FEW_USES if lasted else min(2 * plan.patience, _MANY_USES)
            plan.group, plan.uses = None, 0
        parts = self._values.part(group.cell, list(group.partials.values()))
        ledger = group.ledger
        assert isinstance(ledger, SyncLedger)
        for position, (slot, lead) in enumerate(zip(group.members, group.leads, strict=True)):
            slot.group = None
            slot.ledger = SyncLedger(ledger.version + lead, ledger.seen)
            slot.partials = {
                node: part[position] for node, part in zip(group.partials, parts, strict=True)
            }
            slot.weights = list(group.weights)
            slot.present, slot.mean, slot.opened_s = group.present, group.mean, group.opened_s
            slot.pushes = {
                rank: (link, request, number + lead, want_value, priority, False)
                for rank, (link, request, number, want_value, priority, _) in group.pushes.items()
            }
            slot.pulls = {
                where: (rank, least + lead, payload, num_ids, priority)
                for where, (rank, least, payload, num_ids, priority) in group.pulls.items()
            }
            slot.refused = dict(group.refused)

    def part_all(self) -> None:
        """End all groups: something happens that concerns slots one by one."""
        for plan in self._plans.values():
            if plan.group is not None:
                self.part(plan.group)

    def _look(self, entries: tuple[PushEntry, ...]) -> _Plan:
        if len(self._known) >= _MOST_PLANS:
            self.part_all()
            self._known.clear()
            self._plans.clear()
        plan = self._plans.setdefault(entries, _Plan())
        self._known[id(entries)] = entries, plan
        return plan

    def _form(self, plan: _Plan, entries: tuple[PushEntry, ...]) -> None:
        members: list[Slot] = []
        for entry in entries:
            slot = self._slots.get((entry.key_id, entry.index))
            if slot is None or not _is_idle(slot) or not self._is_plain(slot, entry):
                return
            members.append(slot)
        version = min([slot.ledger.version for slot in members])
        leads = [slot.ledger.version - version for slot in members]
        alike = len({slot.store for slot in members}) == 1 and len(set(members)) == len(members)
        if not alike or leads != [entry.lead for entry in entries]:
            return
        cell = self._values.join([slot.cell for slot in members])
        if cell is None:
            plan.uses, plan.patience = 0, _MANY_USES
            return
        self._generation += 1
        group = Group(members, leads, entries, cell, version)
        group.plan, plan.group, plan.uses = plan, group, 0
        for slot in members:
            slot.group = group

    def _is_plain(self, slot: Slot, entry: PushEntry) -> bool:
        if entry.encoding != _RAW or entry.layout is not Layout.DENSE:
            return False
        try:
            self._values.check_push(slot.cell, entry, None, 0)
        except BiremeError:
            return False
        return True

    def _units(self, entries: tuple[PullEntry, ...]) -> list[tuple[Slot | _Key, int]]:
        wanted = {(entry.key_id, entry.index): entry.lead for entry in entries}
        units: list[tuple[Slot | _Key, int]] = []
        seen: set[int] = set()
        for key, lead in wanted.items():
            slot = self._slots.get(key)
            group = None if slot is None else slot.group
            if slot is None:
                units.append((key, lead))
            elif group is None:
                units.append((slot, lead))
            elif id(group) not in seen:
                raised = _raised(group, wanted)
                if raised is None:
                    self.part(group)
                    units.append((slot, lead))
                else:
                    seen.add(id(group))
                    units.append((group, raised))
        return units


def _is_idle(slot: Slot) -> bool:
    """Return whether nothing is open or awaited at a slot, so that it may become a part."""
    ledger = slot.ledger
    return (
        type(ledger) is SyncLedger
        and slot.group is None
        and not ledger.seen
        and not (slot.partials or slot.pushes or slot.pulls or slot.refused)
    )


def _raised(group: Group, wanted: Mapping[_Key, int]) -> int | None:
    """Return how far a pull's leads are above the group's, or ``None`` if not all alike."""
    raised = {
        wanted[slot.key_id, slot.index] - lead if (slot.key_id, slot.index) in wanted else None
        for slot, lead in zip(group.members, group.leads, strict=True)
    }
    return raised.pop() if len(raised) == 1 else None
