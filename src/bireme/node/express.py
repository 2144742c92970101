"""Steps that repeat exactly, between the bytes and the state machines by the shortest way.

A step of one small key costs what the functions cost that it passes through, once each and cold.
So a message that is like an earlier one is known by its bytes where it lies, its payload is read
there, and the answer leaves by one write. The state machine decides whether it is just what comes
next; whatever is not takes the ordinary way through :mod:`bireme.node.runtime`, and nobody can
tell from the state which way a message took.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Protocol

from bireme.core import actions as act
from bireme.core.bunches import Bunch
from bireme.core.calls import Call, PushCall
from bireme.core.requests import PushRequest
from bireme.core.server import ServerCore
from bireme.core.worker import WorkerCore
from bireme.transport.base import AT_ONCE_BYTES, Link, ReceivedFrame, Transport
from bireme.wire.messages import Message, Push, Value
from bireme.wire.repeats import Repeats, Stencil

if TYPE_CHECKING:
    from bireme.node.memory import Memory
    from bireme.node.parcels import Parcel

__all__ = ("Express", "ServerExpress", "Station", "WorkerExpress")

_MOST_STENCILS = 1 << 12


class Station(Protocol):
    """What the short way needs of the runtime."""

    lock: threading.RLock
    links: dict[int, Link]
    num_messages: int
    ended: act.EndJob | None

    @property
    def inbox(self) -> Sized:
        """What is to be done before anything that arrives."""

    def perform(self, actions: Sequence[act.Action]) -> None:
        """Carry out actions in order. The lock is held."""


class Express(ABC):
    """The short way of one role.

    Args:
        station: The runtime.
        kind: The messages that it takes; others are not looked at.
    """

    def __init__(self, station: Station, kind: type[Push] | type[Value]) -> None:
        self._station = station
        self._kind = kind
        self._repeats: dict[int, Repeats] = {}

    def learn(self, number: int, head: bytes, message: Message, payload_bytes: int) -> None:
        """Note a message that came by the ordinary way, to know its like.

        Args:
            number: Of the link.
            head: As it came.
            message: What it says.
            payload_bytes: What followed.
        """
        if type(message) is not self._kind or not 0 < payload_bytes <= AT_ONCE_BYTES:
            return
        repeats = self._repeats.get(number)
        if repeats is None:
            open_links = self._station.links
            self._repeats = {each: of for each, of in self._repeats.items() if each in open_links}
            repeats = self._repeats[number] = Repeats()
        repeats.learn(head, message, payload_bytes)

    def take(self, link: Link, head: bytes, payload: memoryview) -> bool:
        """Take a frame if it repeats an earlier one; return whether it did. Takes the lock."""
        number: int = link.context  # type: ignore[assignment]
        station, repeats = self._station, self._repeats.get(number)
        found = None if repeats is None else repeats.find(head)
        if found is None:
            return False
        with station.lock:
            if station.inbox or station.ended is not None or number not in station.links:
                return False
            message, first, second = found
            if not self._take(number, message, (first, second), ReceivedFrame(head, payload)):
                return False
            station.num_messages += 1
            return True

    def submit(self, call: Call) -> bool:
        """Carry out a call of the user if that goes by the short way; return whether it does."""
        return False

    @abstractmethod
    def _take(
        self, number: int, message: Message, numbers: tuple[int, int], frame: ReceivedFrame
    ) -> bool:
        """Take a message of the kind, with numbers of its own, if it is what comes next."""


class ServerExpress(Express):
    """Takes pushes that repeat, and answers them.

    Args:
        core: The server.
        station: Its runtime.
    """

    def __init__(self, core: ServerCore, station: Station) -> None:
        super().__init__(station, Push)
        self._core = core
        self._stencils: dict[int, tuple[object, int, Stencil]] = {}

    def _take(
        self, number: int, message: Message, numbers: tuple[int, int], frame: ReceivedFrame
    ) -> bool:
        push: Push = message  # type: ignore[assignment]
        actions = self._core.push_again(number, push, numbers, frame, time.monotonic())
        if actions is None:
            return False
        for action in actions:
            if type(action) is not act.Send or not self._answer(action):
                self._station.perform((action,))
        return True

    def _answer(self, action: act.Send) -> bool:
        """Send a value that lies in one piece of memory; return whether it was one."""
        message, link = action.message, self._station.links.get(action.link)
        if type(message) is not Value or len(action.payload) != 1 or link is None:
            return False
        memory: Memory = action.payload[0]  # type: ignore[assignment]
        view = memory.view
        size_bytes = len(view)
        if not 0 < size_bytes <= AT_ONCE_BYTES:
            return False
        entries, view_number, stencil = self._stencils.get(id(message.entries), _UNKNOWN)
        if entries is not message.entries or view_number != message.view:
            stencil = self._prepare(message, size_bytes)
        head = stencil.write(message.request, message.version)
        if not link.send_at_once(head, [view], size_bytes, memory):
            return False
        self._station.num_messages += 1
        return True

    def _prepare(self, message: Value, size_bytes: int) -> Stencil:
        if len(self._stencils) >= _MOST_STENCILS:
            self._stencils.clear()
        stencil = Stencil(message, size_bytes)
        self._stencils[id(message.entries)] = message.entries, message.view, stencil
        return stencil


_ANY = Stencil(Value(0, 1, 0, ()), 0)
_UNKNOWN: tuple[object, int, Stencil] = (None, 0, _ANY)
_NO_BUNCH: tuple[Bunch | None, tuple[object, ...], Stencil] = (None, (), _ANY)


class WorkerExpress(Express):
    """Sends pushes of one bunch, and takes their answers.

    Args:
        core: The worker.
        station: Its runtime.
        transport: Told to return when a call is done: its caller may be the one who polls.
    """

    def __init__(self, core: WorkerCore, station: Station, transport: Transport) -> None:
        super().__init__(station, Value)
        self._core = core
        self._transport = transport
        self._stencils: dict[int, tuple[Bunch, tuple[object, ...], Stencil]] = {}

    def submit(self, call: Call) -> bool:
        """See `Express`."""
        if type(call) is not PushCall or len(call.bunches) != 1:
            return False
        bunch, handle = call.bunches[0]
        if call.entries or not call.want_value or bunch.size_bytes > AT_ONCE_BYTES:
            return False
        found = self._core.express.push(call, time.monotonic())
        if found is None:
            return False
        station = self._station
        parcel: Parcel = handle  # type: ignore[assignment]
        number, request = found
        link = station.links.get(number)
        form = (self._core.view, request.weight, request.mean, request.priority)
        known = self._stencils.get(id(bunch), _NO_BUNCH)
        stencil = known[2] if known[0] is bunch and known[1] == form else None
        if stencil is None:
            stencil = self._prepare(request, bunch, form)
        head = stencil.write(request.number, bunch.lanes[0].number)
        if link is not None and link.send_at_once(head, parcel.views, parcel.size_bytes, parcel):
            station.num_messages += 1
            return True
        message = request.message(self._core.view)
        station.perform((act.Send(number, message, request.payload(), request.priority),))
        return True

    def _prepare(self, request: PushRequest, bunch: Bunch, form: tuple[object, ...]) -> Stencil:
        if len(self._stencils) >= _MOST_STENCILS:
            self._stencils.clear()
        stencil = Stencil(request.message(self._core.view), bunch.size_bytes)
        self._stencils[id(bunch)] = bunch, form, stencil
        return stencil

    def _take(
        self, number: int, message: Message, numbers: tuple[int, int], frame: ReceivedFrame
    ) -> bool:
        value: Value = message  # type: ignore[assignment]
        actions = self._core.express.value(value, numbers[0], frame, time.monotonic())
        if actions is None:
            return False
        self._station.perform(actions)
        self._transport.returns_soon = True
        return True
