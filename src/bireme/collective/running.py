"""Runs what the ranks have agreed on, in order, and ends the calls that it belongs to.

Called by the engine: `obey` with orders, under the negotiation's lock; `work` by one thread at a
time.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from bireme.collective.bank_plane import best_for_cpu, make_plane
from bireme.collective.base import GLOBAL_SET
from bireme.collective.execution import Execution
from bireme.collective.planes import Plane
from bireme.collective.submissions import Part
from bireme.core.negotiation.fusion import Bucket
from bireme.core.negotiation.member import Execute, Fail, Member, Order, Settle, Stop
from bireme.core.negotiation.messages import Fault, Kind
from bireme.errors import CollectiveError, EngineClosed, MismatchError, RankLost
from bireme.settings.collective import CollectiveSettings
from bireme.types.topology import Topology

__all__ = ("Runner", "error_of")

_ERRORS = {
    Fault.MISMATCH: MismatchError,
    Fault.CLOSED: EngineClosed,
    Fault.LOST: RankLost,
    Fault.BROKEN: CollectiveError,
}


def error_of(fault: Fault, message: str) -> CollectiveError:
    """Return the error that a fault is raised as.

    Example:
        >>> error_of(Fault.LOST, "rank 1 is lost")
        RankLost('rank 1 is lost')
    """
    return _ERRORS[fault](message)


class Runner:
    """One rank's queue of agreed operations, and the data planes that carry them.

    Args:
        topology: This rank's place.
        store: A ``torch.distributed`` store with keys of its own for this engine.
        settings: Rank 0's, on every rank.
        lock: The negotiation's.

    Attributes:
        execution: Does the work; its timeline may be set.
        stop: Why nothing runs any more, or None.
    """

    def __init__(
        self, topology: Topology, store: Any, settings: CollectiveSettings, lock: Any
    ) -> None:
        self.execution = Execution()
        self.stop: Stop | None = None
        self.sets: dict[int, tuple[int, ...]] = {GLOBAL_SET: tuple(range(topology.size))}
        self._rank = topology.rank
        self._store = store
        self._settings = settings
        self._lock = lock
        self._queue: deque[Bucket | Settle | Stop] = deque()
        self._current: list[Part] = []
        self._has_failed = False
        self._planes: dict[tuple[int, str], Plane] = {}
        self._streams: dict[torch.device, Any] = {}
        self.join_device = -1
        self.member: Member[Part]
        self.on_failure: Callable[[Stop], None]

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do. After a failure it has not: all is about to end."""
        return bool(self._queue) and not self._has_failed

    @property
    def is_exchanging(self) -> bool:
        """Whether an exchange is under way."""
        return bool(self._current)

    def obey(self, orders: Sequence[Order]) -> None:
        """Take orders: what runs is queued, what fails fails at once. Lock held."""
        for order in orders:
            if isinstance(order, Execute):
                self._queue += order.buckets
            elif isinstance(order, Fail):
                piece = self.member.take_ticket(order.key)
                if piece is not None:
                    piece.abort(error_of(order.fault, order.message))
            elif isinstance(order, Stop) and (order.fault is not Fault.CLOSED or self._has_failed):
                self.halt(order)
            else:
                # What was agreed on before is done first: everybody else has done it, too.
                self._queue.append(order)

    def halt(self, stop: Stop) -> None:
        """End every operation with an error, now. Lock held."""
        # What has been told and only waits for its turn is the better reason.
        stop = next((item for item in self._queue if isinstance(item, Stop)), stop)
        if self.stop is None:
            self.stop = stop
        self._queue.clear()
        pieces, self._current = [*self._current, *self.member.tickets()], []
        for piece in pieces:
            piece.abort(error_of(stop.fault, stop.message))
        if pieces or stop.fault is not Fault.CLOSED:
            self.give_up(stop.message)

    def work(self) -> None:
        """Do the next thing in the queue."""
        with self._lock:
            if not self._queue:
                return
            item = self._queue.popleft()
            if isinstance(item, Stop):
                self.halt(item)
                return
            if isinstance(item, Settle):
                self._settle(item)
                return
            pieces = self.member.take_tickets(item.keys)
            self._current = list(filter(None, pieces))
        try:
            finished, ready = self._exchange(item, pieces)
        except Exception as error:
            self._failed(item, error)
            return
        with self._lock:
            if self._current:
                self._current = []
                for piece, result in finished:
                    piece.end(result, ready)

    def give_up(self, reason: str) -> None:
        """End the exchanges under way here and, by that, elsewhere."""
        for plane in list(self._planes.values()):
            plane.give_up(reason)

    def close(self) -> None:
        """Leave the planes, and free the memory."""
        planes, self._planes = self._planes, {}
        for plane in planes.values():
            plane.close()
        self.execution.release_memory()

    def _settle(self, item: Settle) -> None:
        request, value = item
        if request.kind is Kind.ADD_SET:
            self.sets[value] = request.numbers
        elif request.kind is Kind.REMOVE_SET and value:
            self.sets.pop(request.numbers[0], None)
            for key in [key for key in self._planes if key[0] == request.numbers[0]]:
                self._planes.pop(key).close()
        piece = self.member.take_ticket(request.key)
        if piece is not None:
            piece.end(value)

    def _exchange(
        self, bucket: Bucket, pieces: Sequence[Part | None]
    ) -> tuple[list[tuple[Part, Any]], Any]:
        """Run a bucket; return the results, and the CUDA event after which they are there."""
        request = bucket.request
        ranks = self.sets[request.process_set]
        device = self._device_of(request.device, pieces)
        plane = self._plane(request.process_set, ranks, request.device)
        if device.type != "cuda":
            return self.execution.run(bucket, pieces, plane, ranks, device), None
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for piece in pieces:
                if piece is not None and piece.event is not None:
                    stream.wait_event(piece.event)
                if piece is not None and piece.tensor is not None:
                    piece.tensor.record_stream(stream)
            finished = self.execution.run(bucket, pieces, plane, ranks, device)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(stream)
        return finished, ready

    def _device_of(self, kind: str, pieces: Sequence[Part | None]) -> torch.device:
        for piece in pieces:
            if piece is not None and piece.tensor is not None:
                return piece.tensor.device
        if kind == "cuda":
            index = self.join_device if self.join_device >= 0 else torch.cuda.current_device()
            return torch.device("cuda", index)
        return torch.device(kind)

    def _plane(self, process_set: int, ranks: tuple[int, ...], device: str) -> Plane:
        key = (process_set, device)
        plane = self._planes.get(key)
        if plane is None:
            settings = self._settings
            is_cuda = device == "cuda"
            backend = settings.cuda_backend if is_cuda else settings.cpu_backend
            store = PrefixStore(f"set/{process_set}/{device}", self._store)
            plane = make_plane(
                backend or best_for_cpu(),
                store,
                ranks.index(self._rank),
                len(ranks),
                found_s=settings.start_timeout_s,
                exchange_s=settings.exchange_timeout_s,
            )
            self._planes[key] = plane
        return plane

    def _failed(self, bucket: Bucket, error: Exception) -> None:
        """Tell the others that an exchange failed; the pieces end when they answer."""
        self._has_failed = True
        name = bucket.request.name
        if isinstance(error, CollectiveError):
            fault = Fault.LOST if isinstance(error, RankLost) else Fault.BROKEN
        else:
            fault = Fault.BROKEN
        text = f"the exchange of {name} failed: {type(error).__name__}: {error}"
        self.give_up(text)
        with self._lock:
            farewell = next((each for each in self._queue if isinstance(each, Stop)), None)
            if farewell is not None:
                # Who left in the middle of this has said so: nobody needs to be asked.
                self.halt(farewell)
                return
        self.on_failure(Stop(fault, text))
