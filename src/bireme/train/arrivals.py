"""Results on their way back from a store, until somebody needs them.

A result is received into memory of its own and copied to where it belongs by the thread that
needs it: parameters change only at moments that the script can name, and never half.
Called by :mod:`bireme.train.overlap`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

import torch

from bireme.errors import StateError
from bireme.kvstore.pending import Pending
from bireme.train.lineup import Lineup

__all__ = ("Arrivals",)

Deliver = Callable[[int, torch.Tensor], None]
"""``deliver(position, result)`` copies a result, of the parameter's shape, to where it belongs."""


class _Flight:
    """What one call of the store brings."""

    __slots__ = ("pending", "results", "versions")

    def __init__(self, pending: Pending, results: dict[int, torch.Tensor]) -> None:
        self.pending = pending
        self.results = results
        self.versions: dict[int, list[int]] = {}


class Arrivals:
    """Results by position.

    A result is *under way* from :meth:`add` on. :meth:`release` makes those under way *due*: from
    then on :meth:`land` waits for them and delivers them.

    Args:
        lineup: The replicas.
        deliver: Takes a result, once, in the thread that calls :meth:`land`.
        watched: Refuse to deliver for a parameter that was changed in place after the release.
    """

    def __init__(self, lineup: Lineup, deliver: Deliver, *, watched: bool) -> None:
        self._lineup = lineup
        self._deliver = deliver
        self._watched = watched
        self._lock = threading.RLock()
        self._under_way: list[_Flight] = []
        self._due: dict[int, _Flight] = {}

    def add(self, pending: Pending, results: dict[int, torch.Tensor]) -> None:
        """Take note of a call under way, and of where it leaves the results."""
        with self._lock:
            self._under_way.append(_Flight(pending, results))

    def release(self) -> None:
        """Make what is under way due: the step is taken."""
        with self._lock:
            for flight in self._under_way:
                for index in flight.results:
                    self._due[index] = flight
                    if self._watched:
                        flight.versions[index] = self._versions(index)
            self._under_way.clear()

    @property
    def any_due(self) -> bool:
        """Whether anything is due."""
        return bool(self._due)

    def is_due(self, index: int) -> bool:
        """Return whether the result of ``index`` is due and not delivered."""
        return index in self._due

    def due(self) -> list[int]:
        """Return the positions whose results are due."""
        with self._lock:
            return list(self._due)

    def land(self, positions: Iterable[int] | None = None) -> None:
        """Wait for due results and deliver them; of all positions when ``None``.

        Raises:
            StateError: A parameter was changed while its new value was on the way.
            BiremeError: What the store's call failed with.
        """
        wanted = self.due() if positions is None else positions
        for index in wanted:
            flight = self._due.get(index)
            if flight is not None:
                flight.pending.wait()
                self._land(flight)

    def _land(self, flight: _Flight) -> None:
        changed = []
        with self._lock:
            for index in flight.results:
                if self._due.get(index) is not flight:
                    continue
                del self._due[index]
                if self._watched and self._versions(index) != flight.versions[index]:
                    changed.append(index)
                else:
                    self._deliver(index, flight.results[index])
        if changed:
            names = ", ".join(repr(self._lineup.names[index]) for index in changed[:3])
            raise StateError(
                f"parameters ({names}) were changed after step(), while their new values were on "
                "the way; call trainer.synchronize() before changing parameters"
            )

    def _versions(self, index: int) -> list[int]:
        params: Sequence[torch.Tensor] = self._lineup.same(index)
        return [param._version for param in params]
