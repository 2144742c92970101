"""Which pushes of different workers belong together, and which rounds are past for a relay.

Called by :mod:`bireme.core.relay` for every push that it is handed, so that one which repeats costs
few steps: the slots that are pushed together stay the same from step to step.
"""

from collections.abc import Iterator

from bireme.core.gathering import Bundle
from bireme.wire.messages import Handover, PushEntry

__all__ = ("Turns",)

_Slot = tuple[int, int]
_Shape = tuple[int, tuple[tuple[int, int, int], ...]]
_MOST_SHAPES = 1 << 14


class _Plan:
    """Slots that are pushed by one message, round after round."""

    __slots__ = ("bundle", "is_spoiled", "last", "owns", "shape")

    def __init__(self, shape: _Shape) -> None:
        self.shape = shape
        self.bundle: Bundle | None = None
        self.owns = False
        """Nobody has pushed one of its slots in another message since."""
        self.last = -1
        """The newest round that was ended, while it owns its slots."""
        self.is_spoiled = False
        """One of its slots was pushed otherwise while a bundle was under way."""

    def numbers(self, number: int) -> Iterator[tuple[_Slot, int]]:
        """Yield each slot with the number that its push has in round ``number``."""
        for key_id, index, lead in self.shape[1]:
            yield (key_id, index), number + lead


class Turns:
    """Finds the bundle that a push belongs to, and refuses what comes too late for one.

    Guarantees:
        A slot is in one bundle at most. A push of a round that was ended or refused for one of its
        slots is never admitted again, in whatever company it comes.
    """

    def __init__(self) -> None:
        self._plans: dict[_Shape, _Plan] = {}
        self._known: dict[int, tuple[object, int, _Plan]] = {}
        self._owners: dict[_Slot, _Plan] = {}
        self._passed: dict[_Slot, int] = {}
        """Newest number that is past, of slots that changed their company."""
        self._under_way: dict[int, _Plan] = {}
        """By identity of the bundle."""

    def find(self, message: Handover) -> Bundle | None:
        """Return the bundle that a push belongs to, if there is one."""
        plan = self._plan(message)
        bundle = plan.bundle
        return bundle if bundle is not None and bundle.round == message.round else None

    def admit(self, message: Handover) -> tuple[bool, list[Bundle]]:
        """Return whether a push comes too late, and bundles that have to end because of it.

        If it comes in time it may be given a bundle by :meth:`open`.
        """
        plan = self._plan(message)
        if plan.owns:
            if message.round > plan.last and plan.bundle is None:
                return False, []
            plan.is_spoiled = plan.bundle is not None
            self._refuse(plan, message.round)
            return True, []
        return self._take_over(plan, message.round)

    def open(self, message: Handover, bundle: Bundle) -> None:
        """Note the bundle that was begun for an admitted push."""
        plan = self._plan(message)
        plan.bundle = bundle
        self._under_way[id(bundle)] = plan

    def close(self, bundle: Bundle) -> None:
        """Note that a bundle has ended: its round is past."""
        plan = self._under_way.pop(id(bundle))
        plan.bundle = None
        plan.last = max(plan.last, bundle.round)
        if plan.is_spoiled:
            self._disown(plan)

    def bundles(self) -> Iterator[Bundle]:
        """Yield what is under way."""
        for plan in list(self._under_way.values()):
            if plan.bundle is not None:
                yield plan.bundle

    def open_bundles(self) -> Iterator[Bundle]:
        """Yield what waits for further workers."""
        return (bundle for bundle in self.bundles() if bundle.pieces is None)

    def _take_over(self, plan: _Plan, number: int) -> tuple[bool, list[Bundle]]:
        """Make ``plan`` the owner of its slots unless one of them is past or under way."""
        late = False
        conflicting: dict[int, Bundle] = {}
        for slot, round_number in plan.numbers(number):
            owner = self._owners.get(slot)
            if owner is not None and owner.bundle is not None:
                late = True
                if owner.bundle.pieces is None:
                    conflicting[id(owner.bundle)] = owner.bundle
                owner.is_spoiled = True
            elif owner is not None:
                self._disown(owner)
            if round_number <= self._passed.get(slot, -1):
                late = True
        if late:
            self._refuse(plan, number)
            return True, list(conflicting.values())
        for slot, _ in plan.numbers(number):
            self._owners[slot] = plan
        plan.owns, plan.last, plan.is_spoiled = True, number - 1, False
        return False, []

    def _refuse(self, plan: _Plan, number: int) -> None:
        """Note that some worker pushes these slots by itself in this round: so must all."""
        for slot, round_number in plan.numbers(number):
            self._passed[slot] = max(self._passed.get(slot, -1), round_number)
        if plan.owns and plan.bundle is None:
            plan.last = max(plan.last, number)

    def _disown(self, plan: _Plan) -> None:
        self._refuse(plan, plan.last)
        plan.owns, plan.is_spoiled = False, False
        for slot, _ in plan.numbers(0):
            if self._owners.get(slot) is plan:
                del self._owners[slot]

    def _plan(self, message: Handover) -> _Plan:
        entries = message.entries
        known = self._known.get(id(entries))
        if known is not None and known[1] == message.server:
            return known[2]
        shape = (message.server, _leads(entries))
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        plan = self._plans.get(shape)
        if plan is None:
            if len(self._plans) >= _MOST_SHAPES:
                self._plans = {
                    each.shape: each
                    for each in self._plans.values()
                    if each.owns or each.bundle is not None
                }
                self._known.clear()
            plan = self._plans[shape] = _Plan(shape)
        self._known[id(entries)] = entries, message.server, plan
        return plan


def _leads(entries: tuple[PushEntry, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple((entry.key_id, entry.index, entry.lead) for entry in entries)
