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

Called by `Bank`.
"""

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from bireme.collective.bank.futex import Futex
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
        # Starting with the next one: ranks do not all wake the same sleeper.
        size = segment.layout.num_ranks
        order = [(segment.rank + i) % size for i in range(1, size)]
        self._others = [(segment.step_word(rank), rank) for rank in order]
        self._addresses = [
            ctypes.c_void_p(segment.address + 4 * segment.step_word(rank)) for rank in range(size)
        ]
        self.step = first_step & _MASK
        self.what = "nothing"
        self.deadline_s = float("inf")
        self._error: str = ""
        self._words[self._mine] = self.step

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
        words = self._words
        step = self.step = (self.step + 1) & _MASK
        self._order_memory()
        words[self._mine] = step
        self._futex.wake(self._addresses[self._segment.rank])
        for word, rank in self._others:
            # Steps are counted around: half of all numbers are behind.
            while (words[word] - step) & _MASK >= _HALF:
                self._sleep(word, rank)
        self._order_memory()

    def _order_memory(self) -> None:
        self._lock.release()
        self._lock.acquire()

    def _sleep(self, word: int, rank: int) -> None:
        seen = self._words[word]
        if self._error:
            raise StateError(f"{self.what}: {self._error}")
        if self._words[self._segment.state_word(rank)] != State.HERE:
            self._look_around()
        if (seen - self.step) & _MASK >= _HALF:
            self._futex.wait(self._addresses[rank], seen)
        if self._words[word] == seen:
            self._look_around()

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
        for address in self._addresses:
            self._futex.wake(address)

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
        self._futex.wake(self._addresses[segment.rank])
