"""Runs the negotiation over the control channel: reports out, verdicts in.

A thin shell around the state machines of `bireme.core.negotiation`; rank 0 has the coordinator too.
Called by the engine; `step` by one thread at a time.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec

from bireme.collective.board import MAX_SLOTS, PATIENCE_S, Board
from bireme.collective.channel import Channel, Gone
from bireme.collective.submissions import Part
from bireme.collective.timeline import CollectiveTimeline
from bireme.core.negotiation.coordinator import Coordinator
from bireme.core.negotiation.events import (
    Absorbed,
    Action,
    Departed,
    Event,
    Noted,
    Reported,
    Send,
    Ticked,
)
from bireme.core.negotiation.member import Member, Order, Stop
from bireme.core.negotiation.messages import Fault, Key, Report, Request, Verdict
from bireme.settings.collective import CollectiveSettings
from bireme.types.topology import Topology

__all__ = ("Entry", "Negotiation")

_log = logging.getLogger(__name__)

_SUSPICION_S = 0.3
"""How long a failure of an exchange waits for the news of the death that caused it."""
_GRIEF_S = 2.0
"""How long a rank whose exchange failed waits to be told why."""


class Entry(NamedTuple):
    """One operation to submit; see `Member.submit`."""

    key: Key
    signature: Hashable
    piece: Part
    make: Callable[[], Request]


class Negotiation:
    """One rank's part in the negotiation.

    Args:
        topology: This rank's place.
        channel: Connects it; to rank 0, or rank 0 to all.
        settings: Rank 0's, on every rank.
        obey: Takes the orders that verdicts bring, in order; called with the lock held.
        board: Where the ranks agree on repeated steps, if all are on one machine; closed with this.

    Attributes:
        lock: Held while the books change.
        timeline: Where rank 0 records the negotiation, or None.
    """

    def __init__(
        self,
        topology: Topology,
        channel: Channel,
        settings: CollectiveSettings,
        obey: Callable[[list[Order]], None],
        board: Board | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.timeline: CollectiveTimeline | None = None
        self.member: Member[Part] = Member(settings.fusion_bytes, MAX_SLOTS)
        self._board = board
        self._ran = 0
        self._is_at_board = False
        self._is_woken = False
        self._rank = topology.rank
        self._channel = channel
        self._obey = obey
        self._coordinator = self._make_coordinator(topology, settings)
        self._suspected: list[tuple[float, Event]] = []
        self._grief: tuple[float, Stop] | None = None
        self._has_stopped = False
        self._encode = msgspec.msgpack.Encoder().encode
        self._read_report = msgspec.msgpack.Decoder(Report).decode
        self._read_verdict = msgspec.msgpack.Decoder(Verdict).decode

    def _make_coordinator(
        self, topology: Topology, settings: CollectiveSettings
    ) -> Coordinator | None:
        if topology.rank != 0:
            return None
        return Coordinator(
            topology.size,
            cache_capacity=settings.cache_capacity,
            stall_warning_s=settings.stall_warning_s,
            stall_shutdown_s=settings.stall_shutdown_s,
            has_board=self._board is not None,
        )

    def submit(self, entries: Sequence[Entry]) -> bool:
        """Submit operations together, and return whether there was nothing to report before.

        Raises:
            ConfigError: A name is under way already; nothing has been submitted.
        """
        member = self.member
        with self.lock:
            for entry in entries:
                member.check_free(entry.key)
            had_news = member.has_news
            for entry in entries:
                member.submit(*entry)
        return not had_news

    def submit_one(
        self, key: Key, signature: Hashable, part: Part, make: Callable[[], Request]
    ) -> bool:
        """Do as `submit` with one operation."""
        member = self.member
        with self.lock:
            member.check_free(key)
            had_news = member.has_news
            member.submit(key, signature, part, make)
        return not had_news

    def step(self, timeout_s: float | None) -> None:
        """Report what is new; if that settles nothing, wait for what others say, and handle it.

        Args:
            timeout_s: Longest wait; None: until something happens.
        """
        with self.lock:
            if self._report():
                return
            limit_s = self._limit(timeout_s)
            bell = self._bell()
            if self._read_board():
                self._is_at_board = False
                return
        if bell is not None:
            self._sleep_at_board(bell, limit_s)
            return
        news = self._channel.poll(limit_s)
        with self.lock:
            for event in news:
                if isinstance(event, Gone):
                    self._gone(event)
                elif self._coordinator is None:
                    self._take(self._read_verdict(event.body))
                else:
                    self._reported(event.rank, self._read_report(event.body))
            self._look_at_the_clock()

    def wake(self) -> None:
        """Make the `step` under way, or the next one, return soon; callable from any thread."""
        self._channel.wake()
        self._is_woken = True
        if self._is_at_board and self._board is not None:
            self._board.wake()

    def close(self) -> None:
        """Leave the board; after the last `step`."""
        if self._board is not None:
            self._board.close()

    def leave(self) -> None:
        """Tell the others that this rank shuts down."""
        with self.lock:
            self._has_stopped = True
            self._tell(self.member.report(is_leaving=True))

    def fail(self, stop: Stop) -> None:
        """Tell the others that an exchange failed here; the orders that follow say why."""
        with self.lock:
            if self._has_stopped:
                self._obey([stop])
                return
            self._grief = (time.monotonic() + _GRIEF_S, stop)
            report = self.member.report(failure=stop.message, fault=stop.fault)
            if self._coordinator is None:
                self._tell(report)
            else:
                self._freeze()
                self._reported(0, report)

    def trace(self, timeline: CollectiveTimeline | None) -> None:
        """Record the negotiation from now on, or no more. On rank 0 only."""
        with self.lock:
            self.timeline = timeline
            if self._coordinator is not None:
                self._absorb()
                self._coordinator.notes.is_tracing = timeline is not None

    def stopped(self) -> None:
        """Note that nothing runs any more: peers that go away are no news."""
        self._has_stopped = True

    # With the lock held.

    def _report(self) -> bool:
        """Tell what is new; return whether that brought orders, on rank 0."""
        if not self.member.has_news:
            return False
        mask = self.member.postable
        if mask and self._board is not None and self._board.post(mask, self.member.epoch):
            self.member.has_posted()
            return self._read_board()
        return self._tell(self.member.report())

    def _tell(self, report: Report) -> bool:
        """Tell the coordinator; return whether that brought orders, on rank 0."""
        self._freeze()
        if self._coordinator is None:
            self._channel.send(0, self._encode(report))
            return False
        return self._feed(Reported(0, report))

    # The board.

    def _bell(self) -> int | None:
        """Return the bell to sleep for, if what this rank waits for is on the board; else None.

        Read before the board: what comes after that rings it again.
        """
        if self._board is None or not self.member.posted:
            return None
        bell = self._board.bell
        self._is_at_board = self._board.epoch == self.member.epoch
        return bell if self._is_at_board else None

    def _sleep_at_board(self, bell: int, limit_s: float | None) -> None:
        assert self._board is not None
        # A wake before this look is seen here, one after it rings the bell.
        was_woken = self._is_woken
        if not was_woken:
            self._board.wait(bell, limit_s)
        self._is_at_board = self._is_woken = False
        with self.lock:
            is_late = self._board.bell == bell and (limit_s is None or limit_s >= PATIENCE_S)
            if not self._read_board() and is_late and not was_woken:
                # The coordinator knows how to wait: for hours, and for links that break.
                self._tell(self.member.report())
            self._look_at_the_clock()

    def _read_board(self) -> bool:
        """Obey what the board says; return whether it said something."""
        if self._board is None:
            return False
        runs = self._board.read()
        for mask in runs:
            self._ran |= mask
            self._obey([self.member.run(mask)])
        return bool(runs)

    def _freeze(self) -> None:
        """Have the coordinator hear of everything, as it is about to hear of something."""
        if self._board is not None and self.member.epoch:
            self._board.freeze()

    def _absorb(self) -> None:
        """On rank 0: freeze the board, and let the coordinator take over what is on it."""
        coordinator, board = self._coordinator, self._board
        if board is None or coordinator is None or not coordinator.epoch:
            return
        epoch, posted = coordinator.epoch, board.absorb()
        self._read_board()
        ran, self._ran = self._ran, 0
        self._carry_out(coordinator.handle(Absorbed(epoch, posted, ran), time.monotonic()))

    def _take(self, verdict: Verdict) -> None:
        """Obey a verdict, after what the board said before it."""
        self._read_board()
        self._obey(self.member.take(verdict))

    def _reported(self, rank: int, report: Report) -> None:
        event = Reported(rank, report)
        if report.failure:
            self._suspected.append((time.monotonic() + _SUSPICION_S, event))
        else:
            self._feed(event)

    def _gone(self, event: Gone) -> None:
        if self._coordinator is not None:
            self._feed(Departed(event.rank, event.reason))
        elif not self._has_stopped:
            self._obey([Stop(Fault.LOST, f"rank {event.rank} is lost: {event.reason}")])

    def _feed(self, event: Event) -> bool:
        assert self._coordinator is not None
        if self.timeline is not None:
            self.timeline.cycle()
        self._absorb()
        actions = self._coordinator.handle(event, time.monotonic())
        if self._board is not None and self._coordinator.epoch:
            self._board.open(self._coordinator.epoch)
        return self._carry_out(actions)

    def _carry_out(self, actions: Sequence[Action]) -> bool:
        has_orders = False
        for action in actions:
            if isinstance(action, Send):
                if action.rank == self._rank:
                    self._take(action.verdict)
                    has_orders = True
                else:
                    self._channel.send(action.rank, self._encode(action.verdict))
            else:
                self._tell_the_user(action)
        return has_orders

    def _tell_the_user(self, action: Action) -> None:
        if isinstance(action, Noted):
            if self.timeline is not None:
                _record(self.timeline, action)
        elif not isinstance(action, Send):
            _log.warning("%s", action.text)

    def _limit(self, timeout_s: float | None) -> float | None:
        """Return how long a poll may take before the clock has something to say."""
        due = [at_s for at_s, _ in self._suspected]
        if self._grief is not None:
            due.append(self._grief[0])
        if self._coordinator is not None and self._coordinator.deadline_s is not None:
            due.append(self._coordinator.deadline_s)
        if not due:
            return timeout_s
        left_s = max(min(due) - time.monotonic(), 0.0)
        return left_s if timeout_s is None else min(left_s, timeout_s)

    def _look_at_the_clock(self) -> None:
        coordinator = self._coordinator
        if self._grief is None and not self._suspected and coordinator is None:
            return
        now_s = time.monotonic()
        if self._suspected and self._suspected[0][0] <= now_s:
            self._feed(self._suspected.pop(0)[1])
        if self._grief is not None and self._grief[0] <= now_s:
            stop, self._grief = self._grief[1], None
            self._obey([stop])
        if coordinator is not None:
            deadline_s = coordinator.deadline_s
            if deadline_s is not None and deadline_s <= now_s:
                self._feed(Ticked())


def _record(timeline: CollectiveTimeline, note: Noted) -> None:
    if note.rank < 0:
        timeline.negotiated(note.name)
        return
    if note.is_first:
        timeline.negotiating(note.name, note.kind)
    timeline.submitted(note.name, note.rank)
