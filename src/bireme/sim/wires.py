"""Machines' links under virtual time: what leaves and what arrives stands in a queue.

Used by :mod:`bireme.sim.network` where a simulation says how fast links are.
"""

from collections.abc import Callable, Mapping

from bireme.errors import ConfigError
from bireme.sim.clock import Clock

__all__ = ("Wires",)

_BYTES_PER_MBIT = 1e6 / 8
_HEAD_BYTES = 100


class Wires:
    """One link for each machine, with a queue in each direction.

    Args:
        clock: The virtual time.
        mbps: Speed of each machine's link, each way; a machine that is not named has no limit.
        burst_bytes: What a link that was idle passes at once, as real shapers do.

    Example:
        >>> clock, seen = Clock(), []
        >>> wires = Wires(clock, {"a": 8.0})
        >>> wires.carry("a", "b", 1_000_000 - 100, lambda: seen.append(clock.now_s))
        >>> clock.run(9.0); seen
        [1.0]
    """

    def __init__(self, clock: Clock, mbps: Mapping[str, float], *, burst_bytes: int = 0) -> None:
        for host, speed in mbps.items():
            if not speed > 0:
                raise ConfigError(f"the speed of the link of {host} must be > 0, got {speed}")
        self._clock = clock
        self._rates = {host: speed * _BYTES_PER_MBIT for host, speed in mbps.items()}
        self._burst_bytes = burst_bytes
        self._free_s: dict[tuple[str, bool], float] = {}
        """Until when each direction is busy with what it was given."""

    def carry(
        self, source: str, target: str, size_bytes: int, arrive: Callable[[], object]
    ) -> None:
        """Call ``arrive`` when a message of ``size_bytes`` has passed both machines' links."""
        if source == target:
            self._clock.after(0.0, arrive)
            return
        size_bytes += _HEAD_BYTES
        left_s = self._pass((source, True), size_bytes)
        self._clock.at(left_s, self._enter, target, size_bytes, arrive)

    def _enter(self, target: str, size_bytes: int, arrive: Callable[[], object]) -> None:
        self._clock.at(self._pass((target, False), size_bytes), arrive)

    def _pass(self, direction: tuple[str, bool], size_bytes: int) -> float:
        rate = self._rates.get(direction[0])
        if rate is None:
            return self._clock.now_s
        # Tokens that gathered while it was idle let it begin as if it had begun earlier.
        idle_since_s = self._clock.now_s - self._burst_bytes / rate
        busy_s = max(self._free_s.get(direction, 0.0), idle_since_s) + size_bytes / rate
        self._free_s[direction] = busy_s
        return max(busy_s, self._clock.now_s)
