"""What the coordinator has to say beside verdicts: warnings, and entries for a timeline. PURE."""

from bireme.core.negotiation.events import Action, Noted
from bireme.core.negotiation.messages import Request
from bireme.core.negotiation.pending import Pending
from bireme.core.negotiation.slots import Slots

__all__ = ("Notes",)


class Notes:
    """Collects them until the event has been handled.

    Args:
        slots: What the slots stand for.
        pending: Which ranks have submitted them.

    Attributes:
        is_tracing: Whether to note what is submitted, for a timeline.

    Example:
        >>> notes = Notes(Slots(4), Pending(2))
        >>> notes.add(Noted("a", "ALLREDUCE", 0, is_first=True))
        >>> len(notes.flush()), notes.flush()
        (1, [])
    """

    def __init__(self, slots: Slots, pending: Pending) -> None:
        self._slots = slots
        self._pending = pending
        self._actions: list[Action] = []
        self.is_tracing = False

    def add(self, action: Action) -> None:
        """Have something done, before the verdicts leave."""
        self._actions.append(action)

    def submitted(self, request: Request, rank: int, *, is_first: bool) -> None:
        """Note for a timeline that a rank has submitted an operation; -1: all have."""
        if self.is_tracing:
            self.add(Noted(request.name, request.kind.name, rank, is_first))

    def submitted_slots(self, found: list[int], rank: int) -> None:
        """Do as `submitted` for slots, before they are pending for that rank."""
        for slot in found:
            meaning = self._slots.at(slot)
            if meaning is not None:
                is_first = rank >= 0 and not self._pending.elsewhere(slot, rank)
                self.submitted(meaning.request, rank, is_first=is_first)

    def flush(self) -> list[Action]:
        """Return what was collected, in order."""
        actions, self._actions = self._actions, []
        return actions
