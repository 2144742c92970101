"""What is noted for timelines."""

from tests.core.negotiation.world import allreduce

from bireme.core.negotiation.events import Noted, Warn
from bireme.core.negotiation.notes import Notes
from bireme.core.negotiation.pending import Pending
from bireme.core.negotiation.slots import Slots


def test_submissions_are_noted_only_for_a_timeline():
    slots, pending = Slots(4), Pending(2)
    slots.assign(1, (0, 1), {0: allreduce("a"), 1: allreduce("a")})
    notes = Notes(slots, pending)
    notes.submitted(allreduce("b"), 0, is_first=True)
    notes.submitted_slots([0], 1)
    notes.add(Warn("late"))
    assert notes.flush() == [Warn("late")]
    notes.is_tracing = True
    notes.submitted_slots([0, 3], 0)
    pending.add(0, 1)
    notes.submitted_slots([0], 1)
    notes.submitted_slots([0], -1)
    notes.submitted(allreduce("b"), 1, is_first=True)
    assert notes.flush() == [
        Noted("a", "ALLREDUCE", 0, True),
        Noted("a", "ALLREDUCE", 1, False),
        Noted("a", "ALLREDUCE", -1, False),
        Noted("b", "ALLREDUCE", 1, True),
    ]
    assert notes.flush() == []
