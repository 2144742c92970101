"""Names that ranks submit without their slot, counted until every rank has. PURE.

Used by the coordinator: for what is new, and for what some rank means otherwise than before.
"""

from bireme.core.negotiation.messages import Key, Request
from bireme.core.negotiation.pending import Pending
from bireme.core.negotiation.sets import Tally
from bireme.core.negotiation.slots import Meaning, Slots
from bireme.core.negotiation.waits import Waits

__all__ = ("Tallies",)


class Tallies:
    """All names that are being counted.

    Args:
        slots: What the slots stand for.
        pending: Which ranks have submitted them.
        waits: Told which names wait, and since when.

    Attributes:
        split: Mask of slots whose names are being counted: what a rank reports of them counts
            for the name.
        candidates: Names of which something has changed since it was looked whether they are
            complete.

    Example:
        >>> from bireme.core.negotiation.messages import Kind
        >>> tallies = Tallies(Slots(4), Pending(2), Waits(60.0))
        >>> request = Request("a", Kind.ALLREDUCE)
        >>> tallies.count(tallies.open(request, None, now_s=0.0), 1, request)
        >>> tallies.take_candidates(), list(tallies.find(request.key).requests)
        ([(0, 'a')], [1])
    """

    def __init__(self, slots: Slots, pending: Pending, waits: Waits) -> None:
        self._slots = slots
        self._pending = pending
        self._waits = waits
        self._tallies: dict[Key, Tally] = {}
        self.split = 0
        self.candidates: dict[Key, None] = {}

    def __len__(self) -> int:
        """Return how many names are being counted."""
        return len(self._tallies)

    def find(self, key: Key) -> Tally | None:
        """Return the tally of a name that is being counted."""
        return self._tallies.get(key)

    def of_set(self, number: int) -> list[Key]:
        """Return the names that are being counted in a process set."""
        return [key for key in self._tallies if key[0] == number]

    def open(self, request: Request, meaning: Meaning | None, now_s: float) -> Tally:
        """Begin to count a name; ranks that reported its slot have submitted what that means.

        Args:
            request: Of the rank that submits it now.
            meaning: Of the name's slot, if it has one.
            now_s: The time.
        """
        tally = self._tallies[request.key] = Tally(request)
        self._waits.name(request.key, now_s)
        if meaning is not None:
            bit = 1 << meaning.slot
            self.split |= bit
            for rank in meaning.ranks:
                if self._pending.take(rank, bit):
                    tally.requests[rank] = meaning.requests[rank]
        return tally

    def count(self, tally: Tally, rank: int, request: Request) -> None:
        """Note what a rank has submitted."""
        tally.requests[rank] = request
        self.candidates[request.key] = None

    def close(self, key: Key) -> None:
        """Count a name no longer."""
        del self._tallies[key]
        self._waits.name_ended(key)
        meaning = self._slots.find(key)
        if meaning is not None:
            self.split &= ~(1 << meaning.slot)

    def look_again(self) -> None:
        """Make candidates of all names: fewer ranks have to submit them now."""
        for key in self._tallies:
            self.candidates[key] = None

    def take_candidates(self) -> list[Key]:
        """Return the candidates; from now on there are none."""
        candidates, self.candidates = list(self.candidates), {}
        return candidates
