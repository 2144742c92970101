"""A worker's side of the parameter server, for the stores: blocking calls with limits."""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import torch

from bireme.core import actions as act
from bireme.core import calls
from bireme.core.bunches import Bunch
from bireme.core.calls import Call
from bireme.core.worker import WorkerCore
from bireme.errors import BiremeError, JobAborted, RemoteProtocolError, StateError
from bireme.node.egress import egress_for
from bireme.node.encodings import HALF
from bireme.node.express import WorkerExpress
from bireme.node.landing import Landing
from bireme.node.memory import Held
from bireme.node.parcels import Parcel
from bireme.node.pump import Pump
from bireme.node.relay import Relay
from bireme.node.runtime import Runtime
from bireme.node.tickets import Place, Slot, Ticket
from bireme.observe.timeline import Timeline
from bireme.transport.base import Buffer, Link, ReceivedFrame, Transport
from bireme.transport.interrupts import Shield
from bireme.transport.pacing import Pacing
from bireme.types.choices import Layout
from bireme.types.nodes import NodeId
from bireme.wire.messages import (
    CommandKind,
    InitEntry,
    KeyDecl,
    KeyPlacement,
    Rows,
    Start,
    Value,
)

__all__ = ("PushItem", "WorkerClient")

PushItem = tuple[int, int, Held, int, str, Layout, int]
"""``(key_id, index, memory, size_bytes, encoding, layout, num_rows)`` of one slot."""


class WorkerClient:
    """Carries out a worker's calls over one transport.

    Args:
        core: The worker's state machine.
        transport: Open; closed by :meth:`leave`.
        scheduler: The scheduler's address.
        inproc_names: Names that can be reached within this process.
        payload_crc: Send a checksum with every payload.
        timeline: What happens is recorded there; written when the worker leaves.
        relay: To be opened if this worker is the first of its machine; closed by :meth:`leave`.

    Guarantees:
        Every method may be called from any thread. Every wait ends within its limit, with an error
        that names who is missing. After the job has ended, every call raises ``JobAborted`` with
        the culprit's name.
    """

    def __init__(
        self,
        core: WorkerCore,
        transport: Transport,
        scheduler: str,
        inproc_names: Sequence[str] = (),
        payload_crc: bool = False,
        timeline: Timeline | None = None,
        relay: Relay | None = None,
    ) -> None:
        self._core = core
        self._relay = relay
        self.timeline = timeline
        self._transport = transport
        self._tickets: dict[int, Ticket] = {}
        self._numbers = itertools.count(1)
        self._open_pushes: list[Ticket] = []
        self._background: list[Ticket] = []
        self._pushing = threading.Lock()
        self._left = False
        transport.sink = self._sink
        self._runtime = Runtime(
            core,
            transport,
            scheduler=scheduler,
            name="worker",
            outcome=self,
            inproc_names=inproc_names,
            payload_crc=payload_crc,
        )
        self._runtime.timeline = timeline
        self._runtime.take_express(WorkerExpress(core, self._runtime, transport))
        self._runtime.paced = self._paced
        self._runtime.open_relay = None if relay is None else relay.open
        self._shield = Shield()
        self._pump = Pump(self._step, self._runtime.wake, "bireme-keeper", self._shield)

    @property
    def rank(self) -> int:
        """This worker's rank, once the job is complete."""
        node = self._core.node
        if node is None:
            raise StateError("the worker has no rank before the job is complete; call ready first")
        return node.rank

    @property
    def num_messages(self) -> int:
        """Messages sent and received so far, heartbeats included."""
        return self._runtime.num_messages

    def ready(self, timeout_s: float) -> Start:
        """Join the job and wait until it is complete."""
        self._shield.raise_up()
        self._runtime.start()
        self._pump.start()
        started = cast("Start", self._call(lambda n: calls.ReadyCall(n, timeout_s)))
        if self._relay is not None and not self._relay.is_open:
            self._relay.close()
        return started

    def declare(
        self, store: int, keys: Sequence[KeyDecl], timeout_s: float
    ) -> Sequence[KeyPlacement]:
        """Agree with all workers on keys and return their placements, in order."""
        result = self._call(lambda n: calls.DeclareCall(n, store, tuple(keys), timeout_s))
        placements = cast("Sequence[KeyPlacement]", result)
        if self.timeline is not None:
            self.timeline.names |= {each.key_id: str(each.name) for each in placements}
        return placements

    def init(self, store: int, entries: Sequence[tuple[InitEntry, Held]], timeout_s: float) -> None:
        """Give slots their first value."""
        self._call(lambda n: calls.InitCall(n, store, tuple(entries), timeout_s))

    def push(
        self,
        items: Sequence[PushItem],
        timeout_s: float,
        *,
        weight: float = 1.0,
        mean: bool = False,
        priority: int = 0,
        bunches: Sequence[tuple[Bunch, Parcel]] = (),
    ) -> None:
        """Push slots and return at once; :meth:`flush` waits for them and raises their errors."""
        self._raise_old_errors()
        ticket = self._begin(
            lambda n: calls.PushCall(
                n,
                tuple(items),
                timeout_s,
                weight=weight,
                mean=mean,
                priority=priority,
                bunches=tuple(bunches),
            )
        )
        with self._pushing:
            self._open_pushes.append(ticket)

    def pushpull(
        self,
        items: Sequence[PushItem],
        places: Mapping[Slot, Place],
        timeout_s: float,
        *,
        weight: float = 1.0,
        mean: bool = False,
        priority: int = 0,
        bunches: Sequence[tuple[Bunch, Parcel]] = (),
    ) -> None:
        """Push slots, and return when the new values are in their places."""
        number = next(self._numbers)
        call = calls.PushCall(
            number, tuple(items), timeout_s, weight, mean, True, priority, tuple(bunches)
        )
        self._wait(self._submit(number, call, Ticket(places)))

    def begin_pushpull(
        self,
        items: Sequence[PushItem],
        places: Mapping[Slot, Place],
        timeout_s: float,
        *,
        weight: float = 1.0,
        mean: bool = False,
        priority: int = 0,
        bunches: Sequence[tuple[Bunch, Parcel]] = (),
    ) -> Ticket:
        """Begin a :meth:`pushpull` and return at once; :meth:`finish` waits for it.

        It makes progress while nobody waits. :meth:`flush` waits for its end too, and leaves its
        error to :meth:`finish`.
        """
        self._raise_if_ended()
        with self._shield:
            self._pump.background(1)
            try:
                ticket = self._begin(
                    lambda n: _exchange(n, items, timeout_s, weight, mean, priority, bunches),
                    places,
                    on_done=partial(self._pump.background, -1),
                )
            except BaseException:
                self._pump.background(-1)
                raise
            with self._pushing:
                self._background = [each for each in self._background if not each.done]
                self._background.append(ticket)
            return ticket

    def finish(self, ticket: Ticket) -> None:
        """Wait for what a ``begin_`` method began, and raise its error."""
        self._wait(ticket)

    def pull(self, places: Mapping[Slot, Place], timeout_s: float, *, priority: int = 0) -> None:
        """Fetch values, after all that this worker has pushed to their slots."""
        if isinstance(places, Landing):
            bunches = places.bunches
            self._call(lambda n: calls.PullCall(n, (), timeout_s, priority, bunches), places)
            return
        self._call(lambda n: calls.PullCall(n, tuple(places), timeout_s, priority), places)

    def allocate(self, size_bytes: int) -> Buffer:
        """Return memory from which pushes leave with the fewest copies."""
        return self._transport.allocate(size_bytes)

    def rows(self, slot: Slot, ids: Held, num_ids: int, place: Place, timeout_s: float) -> None:
        """Fetch rows of one slot."""
        size_bytes = ids.view.nbytes
        self._call(
            lambda n: calls.RowsCall(n, *slot, ids, size_bytes, num_ids, timeout_s), {slot: place}
        )

    def begin_rows(
        self,
        slot: Slot,
        ids: Held,
        num_ids: int,
        place: Place,
        timeout_s: float,
        *,
        ahead: int = 0,
    ) -> Ticket:
        """Ask for rows of one slot and return at once; :meth:`finish` waits for them.

        Args:
            slot: The slot.
            ids: Row numbers, int64.
            num_ids: How many.
            place: Where the rows go.
            timeout_s: Limit from now on.
            ahead: Pushes to the slot, beyond those made so far, that the rows must hold.
        """
        size_bytes = ids.view.nbytes
        return self._begin(
            lambda n: calls.RowsCall(n, *slot, ids, size_bytes, num_ids, timeout_s, ahead=ahead),
            {slot: place},
        )

    def command(
        self,
        store: int,
        command: CommandKind,
        body: Mapping[str, object],
        timeout_s: float,
        pieces: Mapping[int, bytes] | None = None,
    ) -> dict[int, tuple[dict[str, object], bytes]]:
        """Change something on every server; return each server's answer."""
        held: dict[int, tuple[object, int]] = {
            rank: (Held(memoryview(piece)), len(piece)) for rank, piece in (pieces or {}).items()
        }
        ticket = self._begin(
            lambda n: calls.CommandCall(n, store, command, dict(body), timeout_s, held)
        )
        return cast("dict[int, tuple[dict[str, object], bytes]]", self._wait(ticket))

    def barrier(self, name: str, timeout_s: float) -> None:
        """Wait for all workers."""
        self._call(lambda n: calls.BarrierCall(n, name, timeout_s))

    def status(self, node: NodeId, timeout_s: float) -> Mapping[str, object]:
        """Ask a node what it is waiting for; plain data."""
        result = self._call(lambda n: calls.StatusCall(n, node, timeout_s))
        return cast("Mapping[str, object]", result)

    def resume(self, key_ids: Sequence[int], timeout_s: float) -> None:
        """Continue the numbering of a dead predecessor for keys that are pushed together."""
        self._call(lambda n: calls.ResumeCall(n, tuple(key_ids), timeout_s))

    def flush(self) -> None:
        """Wait until every push of :meth:`push` is acknowledged, and raise the first error."""
        with self._pushing:
            background = list(self._background)
        for begun in background:
            self._pump.until(lambda ticket=begun: ticket.done)  # type: ignore[misc]
        while (ticket := self._oldest_push()) is not None:
            self._pump.until(lambda ticket=ticket: ticket.done)  # type: ignore[misc]
            if self._forget_push(ticket):
                ticket.value()

    def leave(self, timeout_s: float, reason: str = "") -> None:
        """Leave the job, then close everything; a second call does nothing.

        Args:
            timeout_s: Limit of the scheduler's answer.
            reason: Why this worker failed; empty when it is done.
        """
        if self._left:
            return
        self._left = True
        try:
            if self._relay is not None:
                # While the servers are there: they may go as soon as this worker has left.
                self._relay.close()
            if self._runtime.ended is None:
                self._call(lambda n: calls.LeaveCall(n, timeout_s, reason))
        finally:
            self._pump.stop()
            self._transport.close()
            self._shield.lower()
            if self.timeline is not None:
                self.timeline.write()

    def _paced(self, pacing: Pacing) -> None:
        """Order what leaves, where the network is slow enough for the order to matter."""
        self._runtime.order(egress_for(pacing.bytes_per_s, self._core.slice_bytes))
        if self._relay is not None:
            self._relay.pace(pacing)

    def _call(
        self, make: Callable[[int], Call], places: Mapping[Slot, Place] | None = None
    ) -> object:
        return self._wait(self._begin(make, places))

    def _begin(
        self,
        make: Callable[[int], Call],
        places: Mapping[Slot, Place] | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> Ticket:
        number = next(self._numbers)
        return self._submit(number, make(number), Ticket(places, on_done))

    def _submit(self, number: int, call: Call, ticket: Ticket) -> Ticket:
        if self._runtime.ended is not None:
            raise self._ending_error()
        self._tickets[number] = ticket
        with self._shield:
            self._runtime.submit(call)
        return ticket

    def _wait(self, ticket: Ticket) -> object:
        self._pump.until(lambda: ticket.done)
        return ticket.value()

    def _step(self) -> None:
        self._runtime.step()
        if self._runtime.ended is not None:
            error = self._ending_error()
            for number in list(self._tickets):
                self._settle(number, error=error)

    def _raise_if_ended(self) -> None:
        if self._runtime.ended is not None:
            raise self._ending_error()

    def _ending_error(self) -> BiremeError:
        ended = self._runtime.ended
        return JobAborted(ended.text if ended is not None else "the job has ended")

    def _raise_old_errors(self) -> None:
        while (ticket := self._oldest_push()) is not None and ticket.done:
            if self._forget_push(ticket):
                ticket.value()

    def _oldest_push(self) -> Ticket | None:
        with self._pushing:
            return self._open_pushes[0] if self._open_pushes else None

    def _forget_push(self, ticket: Ticket) -> bool:
        """Return whether the caller is the one to raise its error: several threads may wait."""
        with self._pushing:
            if ticket not in self._open_pushes:
                return False
            self._open_pushes.remove(ticket)
            return True

    def _settle(
        self, number: int, *, result: object = None, error: BiremeError | None = None
    ) -> None:
        ticket = self._tickets.pop(number, None)
        if ticket is None:
            return
        ticket.result, ticket.error, ticket.done = result, error, True
        if ticket.on_done is not None:
            ticket.on_done()
        self._pump.completed()

    def delivered(self, action: act.Deliver) -> None:
        """Copy values to their places; called by the runtime."""
        ticket = self._tickets.get(action.call)
        if ticket is None:
            return
        payload: ReceivedFrame | None = action.payload  # type: ignore[assignment]
        view = memoryview(b"") if payload is None else payload.payload
        if action.bunch is not None:
            landing: Landing = ticket.places  # type: ignore[assignment]
            landing.take(action.bunch, view)
            return
        coded = {} if action.message is None else _casts(action.message)
        for key_id, index, _version, offset_bytes, _size_bytes in action.entries:
            place, element = ticket.places[key_id, index], coded.get((key_id, index))
            if element is None:
                place.write(view, offset_bytes)
            else:
                place.write_cast(view, offset_bytes, element)

    def completed(self, action: act.Complete) -> None:
        """Note a call's result; called by the runtime."""
        result = action.result
        if isinstance(result, dict):
            result = {rank: _copied(answer) for rank, answer in result.items()}
        self._settle(action.call, result=result)

    def failed(self, action: act.Fail) -> None:
        """Note a call's error; called by the runtime."""
        self._settle(action.call, error=action.error)

    def _sink(self, _link: Link, head: bytes, payload_bytes: int) -> memoryview | None:
        try:
            message, _ = self._runtime.read(head)
        except RemoteProtocolError:
            return None
        if type(message) is not Rows and (type(message) is not Value or len(message.entries) != 1):
            return None
        with self._runtime.lock:
            waiting = self._core.expects(message)
        if waiting[0] is None:
            return None
        ticket = self._tickets.get(waiting[0])
        entry = message.entries[0] if isinstance(message, Value) else message
        if ticket is None:
            return None
        slot, places = (entry.key_id, entry.index), ticket.places
        if isinstance(places, Landing):
            return places.direct(slot, payload_bytes)
        return places[slot].direct(payload_bytes)


def _exchange(
    number: int,
    items: Sequence[PushItem],
    timeout_s: float,
    weight: float,
    mean: bool,
    priority: int,
    bunches: Sequence[tuple[Bunch, Parcel]],
) -> calls.PushCall:
    """Return a push that wants the new values."""
    return calls.PushCall(
        number, tuple(items), timeout_s, weight, mean, True, priority, tuple(bunches)
    )


def _casts(message: Value) -> dict[Slot, torch.dtype]:
    """Return the element types of the values that did not come in their own."""
    return {
        (entry.key_id, entry.index): HALF[entry.encoding]
        for entry in message.entries
        if entry.encoding in HALF
    }


def _copied(answer: object) -> object:
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], ReceivedFrame):
        return answer[0], bytes(answer[1].payload)
    return answer
