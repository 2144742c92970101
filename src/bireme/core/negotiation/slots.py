"""The response cache: slots that stand for operations negotiated before. PURE.

Called by the coordinator, which alone deals slots; ranks learn them from its verdicts, in one
order, so all of them hold the same. A rank may report a slot before it has heard that the slot
stands for something else now; earlier meanings are kept until every rank concerned has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bireme.core.negotiation.messages import Key, Request, bits

__all__ = ("Meaning", "Slots")

_MOST_RELEASES = 4096
"""How many releases are noted before the order of use is brought up to date."""


@dataclass(slots=True, eq=False)
class Meaning:
    """What a slot stands for."""

    slot: int
    since: int
    """Number of the verdict that says so."""
    key: Key
    ranks: tuple[int, ...]
    requests: Mapping[int, Request]
    """What each rank said; ranks that had joined said nothing."""
    request: Request = field(init=False)

    def __post_init__(self) -> None:
        self.request = next(iter(self.requests.values()))


class Slots:
    """Which slot stands for what, and which has not been used for the longest time.

    Args:
        capacity: Slots that are kept when nothing is under way in them, >= 0.

    Attributes:
        unclear: Mask of slots that had another meaning not long ago.
        grouped: Mask of slots whose operation belongs to a group.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._meanings: dict[int, Meaning] = {}
        self._by_key: dict[Key, Meaning] = {}
        self._used: dict[int, None] = {}
        self._releases: list[int] = []
        self._free: list[int] = []
        self._earlier: list[tuple[int, Meaning]] = []
        self.unclear = 0
        self.grouped = 0

    def __len__(self) -> int:
        """Return how many slots stand for something."""
        return len(self._meanings)

    def at(self, slot: int) -> Meaning | None:
        """Return what ``slot`` stands for now."""
        return self._meanings.get(slot)

    def find(self, key: Key) -> Meaning | None:
        """Return the meaning of an operation that has a slot."""
        return self._by_key.get(key)

    def meant(self, slot: int, seen: int) -> Meaning | None:
        """Return what ``slot`` means to a rank whose last verdict is ``seen``."""
        current = self._meanings.get(slot)
        if current is not None and current.since <= seen:
            return current
        earlier = [
            meaning
            for until, meaning in self._earlier
            if meaning.slot == slot and meaning.since <= seen < until
        ]
        return earlier[-1] if earlier else None

    def groups_in(self, mask: int) -> dict[tuple[str, int], list[int]]:
        """Return the slots of each group in ``mask``, by the group's name and size."""
        found: dict[tuple[str, int], list[int]] = {}
        for slot in bits(mask & self.grouped):
            request = self._meanings[slot].request
            found.setdefault((request.group, request.group_size), []).append(slot)
        return found

    def assign(
        self,
        since: int,
        ranks: tuple[int, ...],
        requests: Mapping[int, Request],
    ) -> Meaning:
        """Give an operation its slot, the one it has or a free one, and return its meaning."""
        key = next(iter(requests.values())).key
        before = self._by_key.get(key)
        if before is not None:
            slot = before.slot
            self._retire(before, since)
        elif self._free:
            slot = self._free.pop()
        else:
            slot = len(self._meanings)
        meaning = Meaning(slot, since, key, ranks, requests)
        self._meanings[slot] = self._by_key[key] = meaning
        if meaning.request.group:
            self.grouped |= 1 << slot
        self._used.pop(slot, None)
        self._used[slot] = None
        return meaning

    def released(self, mask: int) -> None:
        """Note that operations ran."""
        self._releases.append(mask)
        if len(self._releases) > _MOST_RELEASES:
            self._replay()

    def excess(self, busy: int, since: int) -> list[Meaning]:
        """Take away the least recently used slots beyond the capacity, and return them.

        Args:
            busy: Mask of slots that a rank has reported; they stay.
            since: Number of the verdict that says so.
        """
        if len(self._meanings) <= self._capacity:
            return []
        self._replay()
        taken: list[Meaning] = []
        for slot in list(self._used):
            if len(self._meanings) <= self._capacity:
                break
            if not busy >> slot & 1:
                taken.append(self.drop(slot, since))
        return taken

    def drop(self, slot: int, since: int) -> Meaning:
        """Take one slot away."""
        meaning = self._meanings[slot]
        self._retire(meaning, since)
        del self._meanings[slot]
        del self._used[slot]
        self._free.append(slot)
        return meaning

    def forget_earlier(self, seen: Sequence[int]) -> None:
        """Drop earlier meanings that no rank can refer to any more.

        Args:
            seen: The last verdict that each rank has taken.
        """
        self._earlier = [
            (until, meaning)
            for until, meaning in self._earlier
            if any(seen[rank] < until for rank in meaning.ranks)
        ]
        self.unclear = 0
        for _, meaning in self._earlier:
            self.unclear |= 1 << meaning.slot

    def _retire(self, meaning: Meaning, until: int) -> None:
        del self._by_key[meaning.key]
        self._earlier.append((until, meaning))
        self.unclear |= 1 << meaning.slot
        self.grouped &= ~(1 << meaning.slot)

    def _replay(self) -> None:
        for mask in self._releases:
            for slot in bits(mask):
                if slot in self._used:
                    del self._used[slot]
                    self._used[slot] = None
        self._releases.clear()
