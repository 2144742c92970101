"""Counts what goes through any transport, by peer.

Called by the node room when a job is observed, and by benchmarks.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bireme.transport.base import (
    Arrived,
    Frame,
    Identity,
    Link,
    LinkEvent,
    LinkStatistics,
    Transport,
)
from bireme.transport.wrapper import WrappedLink, WrappedTransport

__all__ = ("LinkReport", "MeteredTransport")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """What one link has carried since it opened."""

    remote: str
    peer: Identity
    age_s: float
    deepest_queue_frames: int
    """The most frames that waited at once, seen when one was sent."""
    largest_frame_bytes: int
    """The largest payload, either way."""
    statistics: LinkStatistics


class _MeteredLink(WrappedLink):
    def __init__(self, inner: Link, now_s: float) -> None:
        super().__init__(inner)
        self.opened_s = now_s
        self.deepest_queue_frames = 0
        self.largest_frame_bytes = 0

    def send(
        self, frame: Frame, priority: int = 0, on_sent: Callable[[], None] | None = None
    ) -> None:
        self.inner.send(frame, priority, on_sent)
        queued_frames = self.inner.statistics().queued_frames
        self.deepest_queue_frames = max(self.deepest_queue_frames, queued_frames)
        self.largest_frame_bytes = max(self.largest_frame_bytes, frame.payload_bytes)


class MeteredTransport(WrappedTransport[_MeteredLink]):
    """A transport that can say what its links carry. Closed links are no longer listed.

    Args:
        inner: The transport to meter.
        clock: Seconds, monotonic.

    Example:
        >>> from bireme.transport.inproc import InprocHub, InprocTransport
        >>> hub = InprocHub()
        >>> metered = MeteredTransport(InprocTransport(hub))
        >>> link = metered.connect(InprocTransport(hub).listen("inproc://a"), timeout_s=1)
        >>> metered.report()[0].statistics.frames_sent
        0
    """

    def __init__(
        self,
        inner: Transport,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(inner)
        self._clock = clock

    def wrap(self, inner: Link) -> _MeteredLink:
        """See `WrappedTransport.wrap`."""
        return _MeteredLink(inner, self._clock())

    def event_of(self, event: LinkEvent) -> LinkEvent:
        """See `WrappedTransport.event_of`."""
        if isinstance(event, Arrived):
            link = self.wrapper_of(event.link)
            link.largest_frame_bytes = max(link.largest_frame_bytes, event.frame.payload.nbytes)
        return super().event_of(event)

    def report(self) -> list[LinkReport]:
        """Return what each open link has carried, in the order in which they opened."""
        now_s = self._clock()
        return [
            LinkReport(
                remote=link.remote,
                peer=link.peer,
                age_s=now_s - link.opened_s,
                deepest_queue_frames=link.deepest_queue_frames,
                largest_frame_bytes=link.largest_frame_bytes,
                statistics=link.statistics(),
            )
            for link in self.links()
        ]
