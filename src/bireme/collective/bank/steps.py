"""The clock that the ranks of a bank share: nobody enters a step before all have ended the last.

One rule makes every collective of the bank right, and each of them is a short loop over it:

    What a rank writes into its area in one step, the others read in the next step, never later.

Each rank has two areas, for even and for odd steps. It writes one again two steps later; by then
everybody has ended the step in which it was read. So one sleep a step is enough, there is no
acknowledgement, and the last reading of one operation needs no wait before the next operation.

**Order of memory.** A rank writes its area, then its step; another reads the step, then the area.
x86 keeps that order; ARM and others do not by themselves. Both sides therefore pass a lock between
the two: they release it and take it again. A release and a later acquisition by one thread order
everything before the one with everything after the other (on ARM these are ``stlr``/``swpl`` and
``ldaxr``/``casa``, which the architecture keeps in order; on x86 they are locked instructions).
They also order a write before a later read, which x86 does not by itself.

**Waking.** Nobody is woken while any rank is late, and nobody calls the kernel when nobody sleeps:

* Each rank writes its step, passes the lock, reads all steps. Of the passes one is the last, and
  that rank sees that all have ended. Whoever sees it at once *opens the gate*: it writes the step
  into the gate, passes the lock, and wakes the gate's sleepers if any rank says that it sleeps.
* A rank that sleeps says so first, passes the lock, reads the gate and then all steps, and sleeps
  only if the gate is still what it read (the kernel compares and falls asleep in one step).
* So no wake is lost. If the opener's pass is before the sleeper's, the sleeper finds the gate
  open, or all steps ended. If it is after, the opener reads that a rank sleeps, and its wake finds
  the sleeper asleep, or about to compare the gate, which has changed by then.
* Two ranks may open the same gate: they write the same. Nobody opens the next one before both
  have, since their next steps come after it. Who dies with the gate shut costs the others the
  limit of one sleep: they look at the steps then.

**Looking.** Before it sleeps a rank may look at the steps for some microseconds: `looking.py`.

Called by `Bank`.
"""

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from bireme.collective.bank.cores import quota_cores
from bireme.collective.bank.futex import Futex
from bireme.collective.bank.looking import LOOK_S, Looking
from bireme.collective.bank.segment import Segment, State
from bireme.errors import CollectiveError, RankLost, StateError, WaitTimeout

__all__ = ("Steps",)

_MASK = 2**32 - 1
_HALF = 2**31


class Steps:
    """One rank's side of the clock. One thread at a time.

    Args:
        segment: The shared memory.
        names: What to call each rank of the segment in messages: its number in the whole group.
        first_step: Where the clock starts, the same for every rank.
    """

    def __init__(
        self, segment: Segment, names: Sequence[int] | None = None, first_step: int = 0
    ) -> None:
        self._segment = segment
        self._names = list(names) if names is not None else list(range(segment.layout.num_ranks))
        self._futex = Futex()
        self._lock = threading.Lock()
        self._lock.acquire()
        self._words = segment.words
        self._mine = segment.step_word(segment.rank)
        self._asleep = segment.asleep_word(segment.rank)
        others = [rank for rank in range(segment.layout.num_ranks) if rank != segment.rank]
        self._others = [(segment.step_word(rank), rank) for rank in others]
        self._other_steps = [segment.step_word(rank) for rank in others]
        self._other_sleepers = [segment.asleep_word(rank) for rank in others]
        self._gate = segment.gate_word
        self._gate_address = ctypes.c_void_p(segment.address + 4 * self._gate)
        can_look = segment.has_core_each() and quota_cores() >= segment.layout.num_ranks
        self._looking = Looking(LOOK_S if can_look else 0.0)
        self.step = first_step & _MASK
        self.what = "nothing"
        self.deadline_s = float("inf")
        self._error: str = ""
        self._words[self._mine] = self._words[self._gate] = self.step

    def begin(self, what: str, timeout_s: float) -> None:
        """Say what the steps from here on are for, and how long they may take altogether.

        Raises:
            StateError: The bank is closed, or an earlier operation failed and left it unusable.
        """
        if self._error:
            raise StateError(f"{what}: {self._error}")
        self.what = what
        self.deadline_s = time.monotonic() + timeout_s

    def end_step(self) -> None:
        """End this step and sleep until everybody has.

        Raises:
            RankLost: A rank died or left.
            WaitTimeout: Not everybody came in time.
            CollectiveError: Another rank gave up.
        """
        step = self.step = (self.step + 1) & _MASK
        self._order_memory()
        self._words[self._mine] = step
        self._order_memory()
        if self._all_ended(step):
            self._open_gate(step)
        elif not self._look(step):
            self._sleep(step)
        self._order_memory()

    def _order_memory(self) -> None:
        self._lock.release()
        self._lock.acquire()

    def _all_ended(self, step: int) -> bool:
        words = self._words
        for word in self._other_steps:
            # Steps are counted around: half of all numbers are behind.
            if (words[word] - step) & _MASK >= _HALF:
                return False
        return True

    def _open_gate(self, step: int) -> None:
        words = self._words
        words[self._gate] = step
        self._order_memory()
        for word in self._other_sleepers:
            if words[word]:
                self._futex.wake(self._gate_address)
                return

    def _look(self, step: int) -> bool:
        """Return whether everybody was seen to end the step within a moment."""
        limit_s = self._looking.limit_s()
        if not limit_s:
            return False
        end_s = time.perf_counter() + limit_s
        while not self._all_ended(step):
            if time.perf_counter() > end_s:
                self._looking.ended(False)
                return False
        self._looking.ended(True)
        return True

    def _sleep(self, step: int) -> None:
        words = self._words
        words[self._asleep] = 1
        try:
            while True:
                self._order_memory()
                seen = words[self._gate]
                if self._error:
                    raise StateError(f"{self.what}: {self._error}")
                if self._all_ended(step):
                    return
                self._look_at_states()
                self._futex.wait(self._gate_address, seen)
                if words[self._gate] == seen and not self._all_ended(step):
                    self._look_around()
        finally:
            words[self._asleep] = 0

    def _look_at_states(self) -> None:
        words, segment = self._words, self._segment
        for _, rank in self._others:
            if words[segment.state_word(rank)] != State.HERE:
                self._look_around()
                return

    def _look_around(self) -> None:
        """Nothing has moved for a while: see what has become of everybody."""
        for _, rank in self._others:
            state = self._words[self._segment.state_word(rank)]
            # As long as somebody is missing nobody can have ended this step, and so nobody may go.
            if (state != State.HERE or not self.is_alive(rank)) and self._missing():
                self._report(rank, state)
        if time.monotonic() > self.deadline_s and (missing := self._missing()):
            plural = "s" if len(missing) > 1 else ""
            names = ", ".join(map(str, missing))
            note = f"{self.what}: rank{plural} {names} did not take part within the group's timeout"
            self._fail(WaitTimeout(note), State.GAVE_UP)

    def _missing(self) -> list[int]:
        """Return who has not ended this step, by name."""
        words, step = self._words, self.step
        behind = [rank for word, rank in self._others if (words[word] - step) & _MASK >= _HALF]
        return sorted(self._names[rank] for rank in behind)

    def _report(self, rank: int, state: int) -> NoReturn:
        """Raise what a rank that has ended means for this operation."""
        name, note = self._names[rank], self._segment.read_note(rank)
        if state == State.GAVE_UP:
            self._fail(CollectiveError(f"{self.what}: rank {name} gave up: {note}"), State.GAVE_UP)
        if state != State.LOST_SOMEBODY:
            how = "left the group" if state == State.LEFT else "ended"
            note = f"{self.what}: the process of rank {name} {how}"
        self._fail(RankLost(note), State.LOST_SOMEBODY)

    def is_alive(self, rank: int) -> bool:
        """Return whether a rank's process lives."""
        return self._segment.is_alive(rank)

    def _fail(self, error: Exception, state: State) -> NoReturn:
        self.give_up(str(error), state)
        raise error

    def give_up(self, reason: str, state: State = State.GAVE_UP) -> None:
        """Tell the others that this rank will take no further step."""
        if not self._error:
            self._error = f"an earlier operation of this group failed: {reason}"
            self._say(state, reason)

    def cancel(self, reason: str) -> None:
        """End the operation under way, from another thread, and every later one."""
        self.give_up(reason)
        self._futex.wake(self._gate_address)

    def leave(self) -> None:
        """Tell the others that this rank is done; later calls raise."""
        if not self._error:
            self._say(State.LEFT, "")
        self._error = "the group was destroyed"

    def _say(self, state: State, note: str) -> None:
        segment = self._segment
        # A forked child has its parent's objects, and must not speak for it.
        if segment.process != os.getpid():
            return
        segment.write_note(note)
        self._order_memory()
        self._words[segment.state_word(segment.rank)] = state
        self._futex.wake(self._gate_address)
