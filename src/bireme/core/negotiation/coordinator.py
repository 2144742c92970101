"""The coordinator: decides which named operations run, for all ranks in one order. PURE.

One per job, beside rank 0's member. Reports of what ranks have submitted come in, in any order;
verdicts go out. An operation that has a slot costs one bit in a report and one in a verdict, so a
repeated step is a few operations on integers, however many tensors it has.
"""

from collections.abc import Mapping

from bireme.core.negotiation.agreement import objection, sizes_of
from bireme.core.negotiation.events import Absorbed, Action, Departed, Event, Reported, Warn
from bireme.core.negotiation.messages import (
    CONTROL_KINDS,
    Ended,
    Failed,
    Fault,
    Forget,
    Key,
    Kind,
    Learned,
    Opened,
    Report,
    Request,
    Run,
    Settled,
    bits,
    mask_of,
    packed,
)
from bireme.core.negotiation.notes import Notes
from bireme.core.negotiation.outbox import Outbox
from bireme.core.negotiation.pending import Pending
from bireme.core.negotiation.readiness import Refusal, joinable, whole_groups
from bireme.core.negotiation.sets import ProcessSet
from bireme.core.negotiation.slots import Meaning, Slots
from bireme.core.negotiation.stalls import stall_report
from bireme.core.negotiation.tallies import Tallies
from bireme.core.negotiation.waits import Waits

__all__ = ("Coordinator",)


class Coordinator:
    """Matches what ranks submit, by name.

    Args:
        size: Ranks of the job.
        cache_capacity: Slots that are kept.
        stall_warning_s: After how long, and how often, a wait for some ranks is told; 0: never.
        stall_shutdown_s: After how long such a wait ends the job; 0: never.
        has_board: Whether the ranks share a board, where they agree on slots by themselves while
            nothing else is under way.

    Attributes:
        notes: What else is to be done; may be told to trace.
        epoch: Number of the verdict that opened the board; 0 while it is frozen.

    Guarantees:
        Every rank is told of the operations of its process sets in one order, which is the same
        for any two ranks as far as they share sets. An operation that has been submitted by all
        ranks of its set, but for those that have joined, is told in the same call.
    """

    def __init__(
        self,
        size: int,
        *,
        cache_capacity: int = 1024,
        stall_warning_s: float = 60.0,
        stall_shutdown_s: float = 0.0,
        has_board: bool = False,
    ) -> None:
        self._size = size
        self._slots = Slots(cache_capacity)
        self._waits = Waits(stall_warning_s)
        self._shutdown_s = stall_shutdown_s
        self._outbox = Outbox()
        self._sets = {0: ProcessSet(0, tuple(range(size)))}
        self._num_sets = 1
        self._pending = Pending(size)
        self._seen = [0] * size
        self._tallies = Tallies(self._slots, self._pending, self._waits)
        self._joined: dict[int, None] = {}
        self._gone: set[int] = set()
        self._is_over = False
        self._now_s = 0.0
        self._has_board = has_board
        self.notes = Notes(self._slots, self._pending)
        self.epoch = 0

    @property
    def deadline_s(self) -> float | None:
        """When a `Ticked` is due, or None."""
        return None if self._is_over else self._waits.deadline_s()

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take an event and return what is to be done, in order.

        While the board is open, `Absorbed` comes before any other event.
        """
        if self._is_over:
            return []
        self._now_s = now_s
        if isinstance(event, Absorbed):
            self._absorb(event)
        elif isinstance(event, Reported):
            self._take(event.rank, event.report)
        elif isinstance(event, Departed):
            if event.rank not in self._gone:
                self._end(Fault.LOST, f"rank {event.rank} is lost: {event.reason}")
        else:
            self._tick()
        if self._has_board and not self._outbox.is_empty and self._is_quiet():
            self.epoch = self._outbox.next_number
            self._outbox.put(range(self._size), Opened())
        return [*self.notes.flush(), *self._outbox.flush()]

    # Reports.

    def _take(self, rank: int, report: Report) -> None:
        self._seen[rank] = report.seen
        if self._slots.unclear:
            self._slots.forget_earlier(self._seen)
        if report.failure:
            self._end(report.fault, f"rank {rank}: {report.failure}")
            return
        if report.hits:
            self._hit(rank, mask_of(report.hits), report.seen)
        for request in report.requests:
            self._request(rank, request)
        if report.is_leaving:
            self._leave(rank)
        if not self._is_over:
            self._release()

    def _hit(self, rank: int, mask: int, seen: int) -> None:
        unclear = mask & (self._slots.unclear | self._tallies.split)
        mask ^= unclear
        self._pending.add(rank, mask)
        if self.notes.is_tracing:
            self.notes.submitted_slots(bits(mask), rank)
        for slot in bits(unclear):
            meaning = self._slots.meant(slot, seen)
            if meaning is None or rank not in meaning.requests:
                self._end(Fault.BROKEN, f"rank {rank} reported slot {slot}, which it has not")
                return
            self._request(rank, meaning.requests[rank])

    def _request(self, rank: int, request: Request) -> None:
        key = request.key
        if request.kind is Kind.JOIN:
            self._join(rank, request)
            return
        group = self._sets.get(request.process_set)
        if group is None or rank not in group.ranks or group.closed:
            reason = group.closed if group is not None else "the process set has been removed"
            fault = Fault.CLOSED if group is not None else Fault.BROKEN
            self._outbox.put(
                (rank,), Failed(key[0], [request.name], fault, f"{request.name}: {reason}")
            )
            return
        tally = self._tallies.find(key)
        if tally is None:
            meaning = self._slots.find(key)
            if meaning is not None and meaning.requests.get(rank) == request:
                self._pending.add(rank, 1 << meaning.slot)
                is_first = not self._pending.elsewhere(meaning.slot, rank)
                self.notes.submitted(request, rank, is_first=is_first)
                return
            tally = self._tallies.open(request, meaning, self._now_s)
        if rank in tally.requests:
            self._end(Fault.BROKEN, f"rank {rank} submitted {request.name} twice")
            return
        self.notes.submitted(request, rank, is_first=not tally.requests)
        self._tallies.count(tally, rank, request)

    # The board.

    def _absorb(self, event: Absorbed) -> None:
        """Take what ranks have posted as if they had reported it."""
        self.epoch = 0
        if event.ran:
            self._slots.released(event.ran)
        for rank, mask in enumerate(event.posted):
            if mask:
                self._seen[rank] = event.epoch
                self._hit(rank, mask, event.epoch)
        self._waits.slots(self._pending.union(), self._now_s)

    def _is_quiet(self) -> bool:
        """Whether ranks may agree by themselves from here on, as nothing waits for anybody."""
        tallies = self._tallies
        is_busy = self._is_over or tallies or tallies.split or self._joined or self._gone
        return not (is_busy or self.notes.is_tracing or self._pending.union()) and not any(
            group.doomed for group in self._sets.values()
        )

    # Joining and leaving.

    def _join(self, rank: int, request: Request) -> None:
        self._joined[rank] = None
        self._tallies.look_again()
        if len(self._joined) == self._size:
            self._release()
            self._joined.clear()
            self._outbox.put(range(self._size), Settled(request, rank))

    def _leave(self, rank: int) -> None:
        """Fail everything that needs a rank which has shut down."""
        self._gone.add(rank)
        reason = f"rank {rank} has shut down"
        if rank == 0:
            self._end(Fault.CLOSED, reason)
            return
        for group in self._sets.values():
            if rank in group.ranks and not group.closed:
                group.closed = reason
                self._fail_all_of(group, Fault.CLOSED, reason)

    def _fail_all_of(self, group: ProcessSet, fault: Fault, reason: str) -> None:
        for key in self._tallies.of_set(group.number):
            self._tallies.close(key)
            self._fail(group, key[1], fault, f"{key[1]}: {reason}")
        waiting = self._pending.union(group.ranks) & group.mask
        self._fail_slots(group, waiting, fault, reason)

    def _fail_slots(self, group: ProcessSet, mask: int, fault: Fault, reason: str) -> None:
        if not mask:
            return
        self._clear(group, mask)
        for slot in bits(mask):
            meaning = self._slots.at(slot)
            if meaning is not None:
                name = meaning.request.name
                self._fail(group, name, fault, f"{name}: {reason}")

    def _fail(self, group: ProcessSet, name: str, fault: Fault, message: str) -> None:
        self._outbox.put(group.ranks, Failed(group.number, [name], fault, message))

    def _end(self, fault: Fault, message: str) -> None:
        self._is_over = True
        self._outbox.put(range(self._size), Ended(fault, message))

    # What is ready.

    def _release(self) -> None:
        if self._tallies.candidates:
            for key in self._tallies.take_candidates():
                self._conclude(key)
        pending = self._pending.union()
        if pending:
            for group in self._sets.values():
                if group.mask & pending:
                    self._release_set(group)
            pending = self._pending.union()
        self._waits.slots(pending, self._now_s)

    def _release_set(self, group: ProcessSet) -> None:
        if group.closed:
            self._fail_all_of(group, Fault.CLOSED, group.closed)
            return
        ready = self._submitted_by_all(group)
        if ready & self._slots.grouped:
            ready, refusals = whole_groups(self._slots, group, ready)
            self._refuse(group, refusals)
        if not ready:
            return
        self._clear(group, ready)
        self._slots.released(ready)
        if self.notes.is_tracing:
            self.notes.submitted_slots(bits(ready), -1)
        self._outbox.put(group.ranks, Run(packed(ready)))

    def _submitted_by_all(self, group: ProcessSet) -> int:
        ready = self._pending.common(group.mask, group.ranks, but=self._joined)
        if self._joined and ready:
            held = ready & self._pending.union(group.ranks)
            ready, refusals = joinable(self._slots, self._joined, held)
            self._refuse(group, refusals)
        return ready

    def _clear(self, group: ProcessSet, mask: int) -> None:
        self._pending.clear(group.ranks, mask)
        self._waits.ended(mask)

    def _refuse(self, group: ProcessSet, refusals: list[Refusal]) -> None:
        for mask, reason in refusals:
            self._fail_slots(group, mask, Fault.MISMATCH, reason)

    # Names that every rank has submitted.

    def _conclude(self, key: Key) -> None:
        tally = self._tallies.find(key)
        group = self._sets.get(key[0])
        if tally is None or group is None:
            return
        if any(rank not in tally.requests and rank not in self._joined for rank in group.ranks):
            return
        self._tallies.close(key)
        request = tally.first
        message = objection(tally.requests, self._joined)
        if message is not None:
            self._fail(group, request.name, Fault.MISMATCH, message)
            group.doom_of(request, message)
        elif request.kind in CONTROL_KINDS:
            self.notes.submitted(request, -1, is_first=False)
            self._settle(group, request)
        else:
            self._learn(group, tally.requests)

    def _learn(self, group: ProcessSet, requests: Mapping[int, Request]) -> None:
        """Give an operation its slot, which every rank has submitted then."""
        ordered = {rank: requests[rank] for rank in sorted(requests)}
        number = self._outbox.next_number
        meaning = self._slots.assign(number, group.ranks, ordered)
        group.mask |= 1 << meaning.slot
        for rank in requests:
            self._pending.add(rank, 1 << meaning.slot)
        sizes = sizes_of(group.ranks, ordered)
        self._outbox.put(group.ranks, Learned(meaning.slot, meaning.request, sizes))
        for old in self._slots.excess(self._pending.union() | self._tallies.split, number):
            self._forget(old)

    def _forget(self, meaning: Meaning) -> None:
        owner = self._sets.get(meaning.key[0])
        if owner is not None:
            owner.mask &= ~(1 << meaning.slot)
        self._outbox.put(meaning.ranks, Forget(meaning.slot))

    def _settle(self, group: ProcessSet, request: Request) -> None:
        value = 0
        if request.kind is Kind.ADD_SET:
            if any(request.numbers == other.ranks for other in self._sets.values()):
                text = f"{request.name}: there is a process set of these ranks already"
                self._fail(group, request.name, Fault.MISMATCH, text)
                return
            value = self._num_sets
            self._num_sets += 1
            self._sets[value] = ProcessSet(value, request.numbers)
        elif request.kind is Kind.REMOVE_SET:
            value = int(self._remove(request.numbers[0]))
        self._outbox.put(group.ranks, Settled(request, value))

    def _remove(self, number: int) -> bool:
        removed = self._sets.get(number) if number else None
        if removed is None:
            return False
        self._fail_all_of(removed, Fault.BROKEN, "the process set has been removed")
        for slot in bits(removed.mask):
            self._forget(self._slots.drop(slot, self._outbox.next_number))
        del self._sets[number]
        return True

    # Stalls.

    def _tick(self) -> None:
        overdue = self._waits.overdue(self._now_s)
        if not overdue.slots and not overdue.keys:
            return
        meanings = [self._slots.at(slot) for slot, _ in overdue.slots]
        waiting = [
            (each.request, self._pending.ranks_of(each.slot))
            for each in meanings
            if each is not None
        ]
        tallies = [self._tallies.find(key) for key, _ in overdue.keys]
        waiting += [(each.first, list(each.requests)) for each in tallies if each is not None]
        ranks = {number: group.ranks for number, group in self._sets.items()}
        text = stall_report(waiting, ranks, self._joined, overdue.longest_s)
        self.notes.add(Warn(text))
        if self._shutdown_s and overdue.longest_s >= self._shutdown_s:
            self._end(Fault.BROKEN, f"ended after a stall: {text}")
