"""A network that misbehaves by seed, around any transport.

Called by tests and by drills: frames are dropped, delayed, duplicated and reordered, and links are
cut. Real transports do none of these to a frame (they deliver it or close), so what holds under
this one holds with room to spare.
"""

import heapq
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bireme.errors import ConfigError, TransportError
from bireme.transport.base import Frame, Link, LinkEvent, Transport
from bireme.transport.wrapper import WrappedLink, WrappedTransport

__all__ = ("Faults", "FaultyTransport")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often a frame that is sent meets which fate; each from 0 (never) to 1.

    Raises:
        ConfigError: A rate is outside that range, the rates sum to more than 1, or a delay is
            negative.

    Example:
        >>> Faults(drop=0.1, delay=0.2).longest_delay_s
        0.01
    """

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    """Held back for a random time; frames sent later overtake it."""
    reorder: float = 0.0
    """Held back until the next frame of the link has been sent, or the longest delay is over."""
    cut: float = 0.0
    """The link is aborted instead."""
    longest_delay_s: float = 0.01

    def __post_init__(self) -> None:
        """Check the ranges."""
        rates = [self.drop, self.duplicate, self.delay, self.reorder, self.cut]
        if min(rates) < 0 or sum(rates) > 1:
            raise ConfigError(f"fault rates must be >= 0 and sum to at most 1, got {rates}")
        if self.longest_delay_s < 0:
            raise ConfigError(f"longest_delay_s must be >= 0, got {self.longest_delay_s}")


@dataclass(frozen=True, slots=True, order=True)
class _Held:
    """A frame that is held back."""

    due_s: float
    number: int
    link: "_FaultyLink"
    frame: Frame
    priority: int
    on_sent: Callable[[], None] | None


class _FaultyLink(WrappedLink):
    def __init__(self, inner: Link, transport: "FaultyTransport") -> None:
        super().__init__(inner)
        self._transport = transport

    def send(
        self, frame: Frame, priority: int = 0, on_sent: Callable[[], None] | None = None
    ) -> None:
        self._transport.send(self, frame, priority, on_sent)


class FaultyTransport(WrappedTransport[_FaultyLink]):
    """A transport whose links misbehave when they send.

    The same seed and the same order of sends give the same fates. Held frames leave during `poll`.

    Args:
        inner: The transport to disturb.
        faults: The rates; all zero changes nothing.
        seed: Of the fates.
        clock: Seconds; of a simulation, or the system's.
    """

    def __init__(
        self,
        inner: Transport,
        faults: Faults,
        *,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(inner)
        self._faults = faults
        self._random = random.Random(seed)
        self._clock = clock
        self._holding = threading.Lock()
        self._held: list[_Held] = []
        self._swapped: dict[_FaultyLink, _Held] = {}
        self._number = 0

    def wrap(self, inner: Link) -> _FaultyLink:
        """See `WrappedTransport.wrap`."""
        return _FaultyLink(inner, self)

    def send(
        self,
        link: _FaultyLink,
        frame: Frame,
        priority: int,
        on_sent: Callable[[], None] | None,
    ) -> None:
        """Send a frame of ``link``, or let a fault happen to it."""
        with self._holding:
            fate, delay_s = self._fate()
            before = self._swapped.pop(link, None)
            if fate in ("delay", "reorder"):
                held = self._hold(link, frame, priority, on_sent, delay_s)
                if fate == "reorder":
                    self._swapped[link] = held
        if fate == "cut":
            link.inner.abort("cut by the fault injection")
        elif fate == "drop":
            _call(on_sent)
        elif fate in ("pass", "duplicate"):
            link.inner.send(frame, priority, on_sent)
            if fate == "duplicate":
                link.inner.send(frame, priority)
        if before is not None:
            self._release(before)
        if fate in ("delay", "reorder"):
            self.inner.wake()

    def _fate(self) -> tuple[str, float]:
        """Draw what happens to a frame, and a delay; always two draws, so that seeds stay apart."""
        draw = self._random.random()
        delay_s = self._random.random() * self._faults.longest_delay_s
        for name in ("drop", "duplicate", "delay", "reorder", "cut"):
            draw -= getattr(self._faults, name)
            if draw < 0:
                return name, self._faults.longest_delay_s if name == "reorder" else delay_s
        return "pass", 0.0

    def _hold(
        self,
        link: _FaultyLink,
        frame: Frame,
        priority: int,
        on_sent: Callable[[], None] | None,
        delay_s: float,
    ) -> _Held:
        self._number += 1
        due_s = self._clock() + delay_s
        held = _Held(due_s, self._number, link, frame, priority, on_sent)
        heapq.heappush(self._held, held)
        return held

    def _release(self, held: _Held) -> None:
        """Send a held frame, unless it has been sent."""
        with self._holding:
            if held not in self._held:
                return
            self._held.remove(held)
            heapq.heapify(self._held)
        self._send_held(held)

    def _send_held(self, held: _Held) -> None:
        try:
            held.link.inner.send(held.frame, held.priority, held.on_sent)
        except TransportError:
            # It was taken while the link was open: lost with the link, as in a network.
            _call(held.on_sent)

    def _send_due(self) -> float | None:
        """Send what is due and return when the next one is."""
        while True:
            with self._holding:
                now_s = self._clock()
                if not self._held or self._held[0].due_s > now_s:
                    return self._held[0].due_s - now_s if self._held else None
                held = heapq.heappop(self._held)
            self._send_held(held)

    def poll(self, timeout_s: float | None) -> list[LinkEvent]:
        """See `Transport.poll`."""
        next_s = self._send_due()
        if next_s is not None:
            timeout_s = next_s if timeout_s is None else min(timeout_s, next_s)
        events = super().poll(timeout_s)
        self._send_due()
        return events


def _call(on_sent: Callable[[], None] | None) -> None:
    if on_sent is not None:
        on_sent()
