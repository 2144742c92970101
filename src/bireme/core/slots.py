"""One slot of a server: its value, the sum of its open round, and who waits for it.

Called by :mod:`bireme.core.server` for every entry of a push or a pull, so it is written for few
steps per entry. Everything that can be wrong with an entry is found before anything changes.
"""

from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING

from bireme.consistency.base import Ledger, mask_of, ranks_in
from bireme.core.defects import refusal_of
from bireme.core.tree import Tree
from bireme.core.values import SlotValues
from bireme.errors import ConfigError, StateError
from bireme.types.shards import span_of
from bireme.wire.messages import JointPush, Push, PushEntry, SlotRound, ValueEntry

if TYPE_CHECKING:
    from bireme.core.groups import Group

__all__ = ("Crew", "PullWait", "PushWait", "Slot")

PushWait = tuple[int, int, int, bool, int, bool]
"""Who waits for the end of a round: link, request, number of the push, whether it wants values,
their priority, and whether nothing else was pushed by the same message."""

PullWait = tuple[int, int, object, int, int]
"""Who waits for a version: rank, least version, payload and count of row numbers (-1: all), and
the priority of the answer."""


class Crew:
    """The ranks of a job as a server sees them in its view; shared by all slots.

    Args:
        num_workers: Ranks of the job.
        num_shards: Leaves of the canonical sum, cut among the ranks in order.
    """

    def __init__(self, num_workers: int, num_shards: int) -> None:
        self.tree = Tree(num_shards)
        self.num_workers = num_workers
        self.awaited = mask_of(range(num_workers))
        """Ranks whose contributions a round waits for, vacant ones included."""
        self.lost = 0
        """Dead ranks that nobody will replace: their weight is made up for by the others'."""
        self.weights: dict[int, float] = {}
        """The newest weight of each rank."""
        self._within: dict[tuple[int, int], tuple[int, ...]] = {}

    def span(self, rank: int) -> tuple[int, int]:
        """Return the shards of ``rank``: first, and one after the last.

        Example:
            >>> [Crew(2, 5).span(rank) for rank in range(2)]
            [(0, 2), (2, 5)]
        """
        return span_of(rank, self.num_workers, self.tree.num_shards)

    def ranks_within(self, first_shard: int, end_shard: int) -> tuple[int, ...]:
        """Return the ranks whose shards these are; none if one has others too.

        Example:
            >>> crew = Crew(3, 6)
            >>> crew.ranks_within(0, 4), crew.ranks_within(0, 3)
            ((0, 1), ())
        """
        found = self._within.get((first_shard, end_shard))
        if found is None:
            spans = [self.span(rank) for rank in range(self.num_workers)]
            found = tuple(
                rank
                for rank, (first, end) in enumerate(spans)
                if first_shard <= first and end <= end_shard
            )
            covered = sum(spans[rank][1] - spans[rank][0] for rank in found)
            if covered != end_shard - first_shard:
                found = ()
            self._within[first_shard, end_shard] = found
        return found

    def set_members(self, *, lost: int, left: int, replaced: bool) -> None:
        """Take over a new view.

        Args:
            lost: Ranks that died and have no replacement yet.
            left: Ranks that are done.
            replaced: Whether the job waits for replacements of the lost.
        """
        self.lost = 0 if replaced else lost
        absent = left | self.lost
        self.awaited = mask_of(range(self.num_workers)) & ~absent
        self.tree.set_absent(self._shards_of(left), for_now=self._shards_of(self.lost))

    def scale(self, present: int, weights: list[float], mean: bool) -> tuple[float, float]:
        """Return numerator and denominator for a sum of contributions.

        Args:
            present: The ranks that contributed.
            weights: Their weights, in any order.
            mean: Divide by the sum of weights; otherwise make up for the lost ranks.
        """
        total = fsum(weights)
        if mean:
            return (1.0, total) if total > 0 else (0.0, 1.0)
        absent = self.lost & ~present
        if not absent or total <= 0:
            return 1.0, 1.0
        missing = [self.weights.get(rank, 1.0) for rank in ranks_in(absent)]
        return fsum([*weights, *missing]), total

    def _shards_of(self, ranks: int) -> list[int]:
        return [shard for rank in ranks_in(ranks) for shard in range(*self.span(rank))]


class Slot:
    """A slot that has a value.

    Args:
        key_id: Of the key.
        index: Within the key.
        store: The store that the key belongs to.
        cell: What ``SlotValues`` keeps for it.
        ledger: Of the key's consistency.
    """

    __slots__ = (
        "cell",
        "group",
        "index",
        "key_id",
        "ledger",
        "mean",
        "opened_s",
        "partials",
        "present",
        "pulls",
        "pushes",
        "refused",
        "store",
        "value_entries",
        "weights",
    )

    def __init__(self, key_id: int, index: int, store: int, cell: object, ledger: Ledger) -> None:
        self.key_id = key_id
        self.index = index
        self.store = store
        self.cell = cell
        self.ledger = ledger
        self.value_entries: tuple[ValueEntry, ...] | None = None
        """Of a message that brings the value of this slot and no other, once there was one."""
        self.group: Group | None = None
        """Of which the slot is a part. Then its state is the group's, and what is here is old."""
        self.partials: dict[int, object] = {}
        self.weights: list[float] = []
        self.present = 0
        self.mean = False
        self.opened_s = 0.0
        self.pushes: dict[int, PushWait] = {}
        """By rank: who is to be told when the open round is complete."""
        self.pulls: dict[tuple[int, int], PullWait] = {}
        """By link and request."""
        self.refused: dict[int, tuple[int, int]] = {}
        """By rank, the newest push that was refused: incarnation and request. A late duplicate of
        it must not be taken for the next push, which has the same number."""

    def names(self, number: int) -> tuple[SlotRound, ...]:
        """Return one of the slot's rounds, for messages."""
        return (SlotRound(self.key_id, self.index, number),)

    def entries_alone(self, size_bytes: int, encoding: str) -> tuple[ValueEntry, ...]:
        """Return the entries of a message with all that is here: the same ones in every step.

        Args:
            size_bytes: Of the value.
            encoding: Of its bytes.
        """
        entries = self.value_entries
        if (
            entries is None
            or entries[0].payload_bytes != size_bytes
            or entries[0].encoding != encoding
        ):
            entry = ValueEntry(self.key_id, self.index, 0, size_bytes, encoding)
            entries = self.value_entries = (entry,)
        return entries

    def check(
        self,
        values: SlotValues,
        push: Push | JointPush,
        entry: PushEntry,
        payload: object,
        offset_bytes: int,
    ) -> None:
        """Raise unless a contribution can be taken in; nothing changes.

        Raises:
            ConfigError: The entry does not fit the slot, or mixes means with sums.
            StateError: The slot needs an optimizer and has none.
        """
        if self.present and push.mean is not self.mean:
            raise ConfigError(
                f"key {self.key_id}: one worker pushes a mean and another a sum in the same round; "
                f"all must do the same"
            )
        if self.ledger.needs_updater and not values.can_update(self.store):
            raise StateError(
                "a store that is not synchronous applies every push by an optimizer, and none is "
                "set; call set_optimizer before the first push"
            )
        values.check_push(self.cell, entry, payload, offset_bytes)

    def add(
        self,
        values: SlotValues,
        tree: Tree,
        node: int,
        push: Push | JointPush,
        entry: PushEntry,
        payload: object,
        offset_bytes: int,
        ranks: Sequence[int] = (),
    ) -> None:
        """Take a checked contribution of the rank ``push.rank`` into the open round.

        Args:
            values: The arithmetic.
            tree: The canonical order.
            node: Where in it the contribution belongs.
            push: Its message.
            entry: Its entry in the message.
            payload: The message's payload.
            offset_bytes: Where in it the entry's bytes start.
            ranks: Of a joint push: whose contributions it covers.

        Raises:
            BiremeError: The contribution cannot be read. Nothing has changed.
        """
        weights = push.weights if isinstance(push, JointPush) else (push.weight,)
        weight = 1.0 if isinstance(push, JointPush) and push.weighed else weights[0]
        partials = self.partials
        if tree.has_gaps:
            node = tree.climb(partials, node)
        sibling = partials.pop(node ^ 1, None)
        if sibling is None:
            try:
                partial = values.first(self.cell, entry, payload, offset_bytes, weight)
            except Exception as error:
                raise refusal_of(error) from error
        else:
            partial = values.add(self.cell, sibling, entry, payload, offset_bytes, weight)
            node, partial = tree.rise(partials, node >> 1, partial, values.merge)
        partials[node] = partial
        self.mean = push.mean
        self.weights += weights
        for rank in ranks or (push.rank,):
            self.present |= 1 << rank
            self.ledger.record(rank)

    def finish(self, values: SlotValues, crew: Crew) -> None:
        """Apply what was taken in; the next round is open."""
        ledger = self.ledger
        total = crew.tree.total(self.partials, values.merge)
        if not ledger.pools:
            total = values.corrected(self.cell, total, self.present.bit_length() - 1)
        if self.mean or (crew.lost and ledger.pools):
            numerator, denominator = crew.scale(self.present, self.weights, self.mean)
        else:
            numerator, denominator = float(ledger.pools or self.weights[0] > 0), 1.0
        values.finish(self.cell, total, numerator, denominator, ledger.version + 1)
        ledger.advance()
        self.weights.clear()
        self.present = 0

    def report(self, crew: Crew, now_s: float) -> dict[str, object]:
        """Return what the slot waits for, as plain data."""
        ledger = self.ledger
        missing = ranks_in(ledger.missing(crew.awaited))
        return {
            "key_id": self.key_id,
            "index": self.index,
            "round": ledger.expected(missing[0]) if missing else ledger.version,
            "missing": missing,
            "waiting_s": round(now_s - self.opened_s, 3) if self.pushes else 0.0,
        }
