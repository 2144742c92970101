"""Which server a slot lives on: bytes in proportion to the servers' bandwidths.

Pure; the scheduler holds one ``Balancer`` for the job and asks it in the order of declarations.
"""

import heapq
import math
from collections.abc import Iterable, Sequence

from bireme.errors import ConfigError

__all__ = ("SLOT_COST_BYTES", "Balancer")

SLOT_COST_BYTES = 4096
"""What handling one slot costs, in bytes moved in the same time. It spreads tiny keys too."""


_Heap = list[tuple[int, int]]


class Balancer:
    """Gives each slot to the server that would otherwise be the first to fall a slot behind.

    Args:
        bandwidths: One number for each server by rank, >= 0: its share of the load relative to
            the others'. A server with 0 gets nothing.

    Raises:
        ConfigError: There is no server, or a bandwidth is negative or not finite, or all are 0.

    Guarantees:
        The answer depends only on the bandwidths and the sequence of questions. No server ever
        holds more than its share plus one slot; with slots of one size, none less than its share
        minus one slot either.

    Example:
        >>> balancer = Balancer([2.0, 1.0])
        >>> balancer.place([1 << 20] * 6)
        [0, 1, 0, 0, 1, 0]

    Source:
        Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980, section 2,
        with slots of several sizes where he has years.
    """

    def __init__(self, bandwidths: Sequence[float]) -> None:
        if not bandwidths:
            raise ConfigError("a job needs at least one server to place keys on")
        for rank, bandwidth in enumerate(bandwidths):
            if not (math.isfinite(bandwidth) and bandwidth >= 0):
                raise ConfigError(f"bandwidth of S[{rank}] must be >= 0, got {bandwidth}")
        total = math.fsum(bandwidths)
        if not total:
            raise ConfigError("the bandwidths of all servers are 0; one must be > 0")
        self._shares = tuple(bandwidth / total for bandwidth in bandwidths)
        # Of servers with equal shares the one with the least load comes first by every rule, so
        # that one look at the top of each share's heap is enough however many servers there are.
        self._heaps: dict[float, _Heap] = {}
        self._num_taking = 0
        for rank, share in enumerate(self._shares):
            if not share:
                continue
            self._num_taking += 1
            heapq.heappush(self._heaps.setdefault(share, []), (0, rank))
        self._total = 0
        self._largest = 0

    def place(self, sizes_bytes: Iterable[int]) -> list[int]:
        """Return the rank of a server for each slot, and count the slots as placed.

        Args:
            sizes_bytes: Bytes of each slot, >= 0.

        Raises:
            ConfigError: A size is negative; then nothing is placed.
        """
        sizes = list(sizes_bytes)
        for size in sizes:
            if size < 0:
                raise ConfigError(f"the size of a slot must be >= 0 bytes, got {size}")
        return [self._place(size + SLOT_COST_BYTES) for size in sizes]

    def loads(self) -> list[int]:
        """Return what each server carries: bytes, and ``SLOT_COST_BYTES`` for each slot."""
        loads = [0] * len(self._shares)
        for heap in self._heaps.values():
            for load, rank in heap:
                loads[rank] = load
        return loads

    def shares(self) -> tuple[float, ...]:
        """Return each server's share of the load; they sum to 1."""
        return self._shares

    def _place(self, cost: int) -> int:
        self._total += cost
        self._largest = max(self._largest, cost)
        heap = min(
            (item for item in self._heaps.items() if self._may_take(item, cost)), key=self._deadline
        )[1]
        load, rank = heap[0]
        heapq.heapreplace(heap, (load + cost, rank))
        return rank

    def _may_take(self, item: tuple[float, _Heap], cost: int) -> bool:
        """Whether the slot leaves the server at most the slot above its share.

        The lags of all servers sum to ``cost``, so that one of them is at least the mean. The
        tolerance covers the rounding of products that are far below 2**53.
        """
        share, heap = item
        lag = share * self._total - heap[0][0]
        return lag >= cost / self._num_taking - 1e-9 * self._total

    def _deadline(self, item: tuple[float, _Heap]) -> tuple[float, int]:
        """Order by the total load at which the server falls a whole slot behind, then by rank."""
        share, heap = item
        load, rank = heap[0]
        return (load + self._largest) / share, rank
