"""How much of what is to be sent the system takes in advance. Pure.

What it has taken can neither be overtaken nor dealt to the servers by share, and a long queue
delays what answers the other direction. Called when a connection opens, and when the link's speed
becomes known.
"""

from typing import NamedTuple

__all__ = ("UNPACED", "Pacing")

_BACKLOG_S = 0.005
"""Enough for this process to be away from the processor for a moment."""
_LEAST_BACKLOG_BYTES = 16 << 10
_LEAST_AMONG_FASTER_BYTES = 64 << 10
"""A slow link's data also queues among that of faster ones, where little in the queue is little of
their speed: with 16 KiB the answers over a link of 50 Mbit/s used 75 % of it."""
_FASTER = 1.25
"""More than links of one kind differ when they are measured."""

_YIELDING_BACKLOG_S = 0.0006
"""An eighth of the others', so that they get most of the link while they have something to send."""
_LEAST_YIELDING_BACKLOG_BYTES = 15 << 10
"""One or two packets: what the system needs to send at all."""


class Pacing(NamedTuple):
    """What a transport knows of its machine's network link.

    Attributes:
        bytes_per_s: Its speed each way; 0: unknown, or so fast that no queue matters.
        fastest_bytes_per_s: That of the fastest link in the job; 0: none is faster.
        gives_way: Another process of this machine sends by the same link, and what it sends goes
            first. The system deals a link out by how much of each connection waits for it, so who
            gives way keeps little waiting.

    Example:
        >>> Pacing(25e6).backlog_bytes(0.0, 1 << 22)
        125000
        >>> Pacing(25e6, gives_way=True).backlog_bytes(0.0, 1 << 22)
        15360
    """

    bytes_per_s: float = 0.0
    fastest_bytes_per_s: float = 0.0
    gives_way: bool = False

    def backlog_bytes(self, round_trip_s: float, most: int) -> int:
        """Return what one connection may have the system hold, at most ``most``.

        Args:
            round_trip_s: Of the connection: less than the link carries in it would leave it idle.
            most: For a link that is fast.
        """
        if not self.bytes_per_s:
            return most
        limit_s, least = _BACKLOG_S, _LEAST_BACKLOG_BYTES
        if self.gives_way:
            limit_s, least = _YIELDING_BACKLOG_S, _LEAST_YIELDING_BACKLOG_BYTES
        if self.fastest_bytes_per_s > _FASTER * self.bytes_per_s:
            least = _LEAST_AMONG_FASTER_BYTES
        wanted = self.bytes_per_s * max(limit_s, 2 * round_trip_s)
        return int(min(most, max(least, wanted)))


UNPACED = Pacing()
"""Nothing is known of the link."""
