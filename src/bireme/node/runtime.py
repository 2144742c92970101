"""The shell around a role: sockets and clocks on one side, a state machine on the other.

Scheduler, server and worker share it. It decodes what arrives, hands it to the core with the
time, and carries out the actions that come back.
"""

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from bireme.core import actions as act
from bireme.core import events as ev
from bireme.core.calls import Call
from bireme.errors import PeerLost, RemoteProtocolError
from bireme.node.connecting import Connector
from bireme.node.egress import Egress
from bireme.node.express import Express
from bireme.node.links import with_links
from bireme.node.payloads import kept, laid_out, release_all
from bireme.observe import traffic
from bireme.transport.base import (
    Arrived,
    Closed,
    Frame,
    Link,
    LinkEvent,
    Opened,
    ReceivedFrame,
    Transport,
)
from bireme.transport.pacing import Pacing
from bireme.wire.header import crc_of
from bireme.wire.messages import Message, Status
from bireme.wire.probe import MOST_PING_BYTES
from bireme.wire.recall import Codec

if TYPE_CHECKING:
    from bireme.node.memory import Memory
    from bireme.node.parcels import Parcel
    from bireme.observe.timeline import Timeline

__all__ = ("Core", "Outcome", "Runtime")

_log = logging.getLogger("bireme.node")

_LONGEST_POLL_S = 1.0
_ASLEEP_S = 1.0
_LOOK_S = 0.005
"""How often, at most, a node under way looks when its next deadline is; a busy one gets a hundred
messages in that time, and no limit is finer."""
_NOTHING = memoryview(bytes(MOST_PING_BYTES))


class Core(Protocol):
    """What a role's state machine offers (`bireme.core`)."""

    def start(self, now_s: float) -> list[act.Action]:
        """Begin."""

    def handle(self, event: ev.Event, now_s: float) -> list[act.Action]:
        """Take one event."""

    def next_deadline_s(self) -> float | None:
        """When a ``Tick`` is due."""


class Outcome(Protocol):
    """Where the results of calls go; a role without calls gets none."""

    def delivered(self, action: act.Deliver) -> None:
        """Values have arrived; their memory is valid during the call."""

    def completed(self, action: act.Complete) -> None:
        """A call is done."""

    def failed(self, action: act.Fail) -> None:
        """A call has failed."""


class Runtime:
    """Drives one role over one transport.

    Args:
        core: The role's state machine.
        transport: Open, and listening where the role listens.
        scheduler: Address of the scheduler, for roles that connect to it.
        name: What log lines begin with until the role has a name.
        outcome: Takes the results of calls.
        inproc_names: Names that can be reached within this process.
        payload_crc: Send a checksum with every payload; what arrives with one is always checked.

    Guarantees:
        ``step`` is called by one thread at a time; ``submit`` by any thread at any time. Nothing
        that a peer sends raises out of ``step``. ``lock`` is held while the core is at work.
    """

    def __init__(
        self,
        core: Core,
        transport: Transport,
        *,
        scheduler: str,
        name: str,
        outcome: Outcome | None = None,
        inproc_names: Sequence[str] = (),
        payload_crc: bool = False,
    ) -> None:
        self._core = core
        self.open_relay: Callable[[act.OpenRelay], None] | None = None
        """Runs a relay beside the role, in a worker that may be asked to."""
        self._egress: Egress | None = None
        """Orders the payloads that leave this machine; without it each link has its own order."""
        self.paced: Callable[[Pacing], None] | None = None
        """Called when the speed of this machine's link has become known."""
        self.timeline: Timeline | None = None
        """Where to note when payloads leave and arrive."""
        self._transport = transport
        self._name = name
        self._payload_crc = payload_crc
        self.lock = threading.RLock()
        self._codec = Codec()
        self.links: dict[int, Link] = {}
        """The open links by number."""
        self._express: Express | None = None
        self.inbox: collections.deque[tuple[ev.Event | act.EndJob, Link | None]] = (
            collections.deque()
        )
        self._connector = Connector(transport, scheduler, name, inproc_names, self._report)
        self._next_link = 1
        self._lost_early: dict[int, str] = {}
        self._held: set[int] = set()
        self.ended: act.EndJob | None = None
        self._looked_s = -_LOOK_S
        self._due_s: float | None = None
        self._saw_events = False
        self._last_read: tuple[bytes | None, Message | None, int] = (None, None, 0)
        self.num_messages = 0
        """Sent and received so far."""
        self._carry_out: dict[type[act.Action], Callable[[Any], None]] = {
            act.Connect: self._connect,
            act.OpenRelay: self._relay,
            act.Send: self._send,
            act.Fill: self._fill,
            act.Pace: self._pace,
            act.Close: self._close,
            act.Hold: self._hold,
            act.Release: self._release,
            act.Deliver: _ignore if outcome is None else outcome.delivered,
            act.Complete: _ignore if outcome is None else outcome.completed,
            act.Fail: _ignore if outcome is None else outcome.failed,
            act.EndJob: self._end,
            act.Log: self._write_log,
        }

    def take_express(self, express: Express) -> None:
        """Let what repeats exactly take a shorter way, unless every message is to be seen.

        Recorded, checksummed and ordered payloads go the ordinary way.
        """
        if self.timeline is None and self._egress is None and not self._payload_crc:
            self._express = express
            self._transport.express = express.take

    def order(self, egress: Egress) -> None:
        """Have the payloads that leave from now on ordered; none has left yet."""
        self._egress, self._express, self._transport.express = egress, None, None

    def start(self) -> None:
        """Let the role begin."""
        with self.lock:
            self.perform(self._core.start(time.monotonic()))

    def submit(self, call: Call) -> None:
        """Hand the user's call to the role; its outcome comes during a later ``step``."""
        with self.lock:
            if self._express is not None and self._express.submit(call):
                return
            event: ev.Event = call  # type: ignore[assignment]
            for action in self._core.handle(event, time.monotonic()):
                self._carry_out[type(action)](action)

    def read(self, head: bytes) -> tuple[Message, int]:
        """Return a head's message and payload size; called by the thread that is in ``step``.

        A payload sink reads the head when it has arrived, and ``step`` reads it again with the
        whole frame, so the last one is kept.

        Raises:
            RemoteProtocolError: It is no message.
        """
        known, message, payload_bytes = self._last_read
        if known is not head or message is None:
            message, payload_bytes = self._codec.decode(head, is_verified=True)
            self._last_read = head, message, payload_bytes
        return message, payload_bytes

    def wake(self) -> None:
        """Make the ``step`` under way return."""
        self._transport.wake()

    def step(self) -> None:
        """Wait for the next event or deadline, and handle everything that has come."""
        before_s = time.monotonic()
        if before_s < self._looked_s + _LOOK_S and self._saw_events:
            # What became due earlier since the last look can wait for so long.
            due_s, patience_s = self._due_s, self._patience_s(self._due_s, before_s)
            patience_s = min(patience_s, _LOOK_S)
        else:
            self._looked_s = before_s
            due_s = self._due_s = self._core.next_deadline_s()
            patience_s = self._patience_s(due_s, before_s)
        before = self.num_messages
        events = self._transport.poll(patience_s)
        now_s = time.monotonic()
        if now_s > before_s + patience_s + _ASLEEP_S:
            # This process was stopped or starved. Limits are judged by what has come meanwhile.
            events += self._transport.poll(0.0)
        self._saw_events = bool(events) or self.num_messages != before
        with self.lock:
            while self.inbox:
                self._connected(*self.inbox.popleft())
            for event in events:
                if type(event) is Arrived:
                    self._arrived(*event)
                else:
                    self._on_link_event(event)
            # Due by what was known before; the core itself knows what is due by now.
            if due_s is not None and due_s <= now_s and self.ended is None:
                self._handle(ev.Tick())

    def run(self) -> act.EndJob:
        """Drive the role until its part in the job is over."""
        self.start()
        while self.ended is None:
            self.step()
        return self.ended

    def _patience_s(self, due_s: float | None, now_s: float) -> float:
        if self.inbox or self.ended is not None:
            return 0.0
        if due_s is None or due_s > now_s + _LONGEST_POLL_S:
            return _LONGEST_POLL_S
        return max(due_s - now_s, 0.0)

    def _handle(self, event: ev.Event) -> None:
        self.perform(self._core.handle(event, time.monotonic()))

    def _report(self, event: ev.Event | act.EndJob, link: Link | None) -> None:
        self.inbox.append((event, link))
        self._transport.wake()

    def _connected(self, event: ev.Event | act.EndJob, link: Link | None) -> None:
        if isinstance(event, act.EndJob):
            self.ended = self.ended or event
            return
        if link is not None and isinstance(event, ev.Linked):
            reason = self._lost_early.pop(id(link), None)
            if reason is not None:
                self._handle(ev.ConnectFailed(event.node, reason))
                return
            self._number(link, event.link)
        self._handle(event)

    def _on_link_event(self, event: LinkEvent) -> None:
        match event:
            case Opened(link):
                if link.accepted:
                    self._number(link, self._new_link())
            case Closed(link, reason, _graceful):
                self._closed(link, reason)

    def _closed(self, link: Link, reason: str) -> None:
        number = cast("int | None", link.context)
        if number is None:
            # Lost between the connecting thread's success and our turn to hear of it.
            self._lost_early[id(link)] = reason
        elif self.links.pop(number, None) is not None:
            self._handle(ev.Lost(number, reason))

    def _number(self, link: Link, number: int) -> None:
        link.context = number
        self.links[number] = link

    def _new_link(self) -> int:
        self._next_link += 1
        return self._next_link - 1

    def _arrived(self, link: Link, frame: ReceivedFrame) -> None:
        number = link.context
        if number not in self.links or self.ended is not None:
            frame.release()
            return
        try:
            message, payload_bytes = self._codec.decode(frame.head, is_verified=True)
        except RemoteProtocolError as error:
            frame.release()
            link.abort(f"{link.remote} sent what is no message: {error}")
            return
        self.num_messages += 1
        if self._express is not None:
            self._express.learn(number, frame.head, message, payload_bytes)
        if self.timeline is not None:
            traffic.received(self.timeline, message)
        payload = frame if payload_bytes else None
        event = ev.Received(number, message, payload)
        for action in self._core.handle(event, time.monotonic()):
            self._carry_out[type(action)](action)
        if id(frame) not in self._held:
            frame.release()

    def perform(self, actions: Sequence[act.Action]) -> None:
        """Carry out actions in order. The lock is held."""
        for action in actions:
            self._carry_out[type(action)](action)

    def _send(self, action: act.Send) -> None:
        link, message = self.links.get(action.link), action.message
        if link is None:
            return
        if type(message) is Status:
            message = Status(message.request, with_links(message.report, self.links))
        pieces: tuple[Memory | Parcel, ...] = action.payload  # type: ignore[assignment]
        views, size_bytes = laid_out(pieces) if pieces else ([], 0)
        crc = crc_of(views) if views and self._payload_crc else None
        head = self._codec.encode(message, size_bytes, payload_crc=crc)
        self.num_messages += 1
        on_sent = kept(pieces) if pieces else None
        if self.timeline is not None and on_sent is not None:
            on_sent = traffic.sending(self.timeline, message, action.priority, on_sent)
        frame = Frame.of_bytes(head, views, size_bytes)
        if self._egress is not None and on_sent is not None:
            self._egress.send(link, frame, action.priority, on_sent)
            return
        try:
            link.send(frame, action.priority, on_sent)
        except PeerLost:
            # The transport reports the loss by a Closed; the role hears of it then.
            release_all(pieces)

    def _fill(self, action: act.Fill) -> None:
        link, size_bytes = self.links.get(action.link), action.message.payload_size()
        if link is None:
            return
        views = [_NOTHING[:size_bytes]] if size_bytes else []
        head = self._codec.encode(action.message, size_bytes)
        with contextlib.suppress(PeerLost):
            link.send(Frame.of_bytes(head, views, size_bytes))

    def _pace(self, action: act.Pace) -> None:
        pacing = Pacing(action.bytes_per_s, action.fastest_bytes_per_s, action.gives_way)
        self._transport.pace(pacing)
        if self.paced is not None:
            self.paced(pacing)

    def _connect(self, action: act.Connect) -> None:
        self._connector.begin(action.node, self._new_link(), action.addresses)

    def _relay(self, action: act.OpenRelay) -> None:
        if self.open_relay is not None:
            self.open_relay(action)

    def _close(self, action: act.Close) -> None:
        link = self.links.pop(action.link, None)
        if link is not None:
            link.close()

    def _hold(self, action: act.Hold) -> None:
        self._held.add(id(action.payload))

    def _release(self, action: act.Release) -> None:
        self._held.discard(id(action.payload))
        action.payload.release()  # type: ignore[attr-defined]

    def _end(self, action: act.EndJob) -> None:
        self.ended = action

    def _write_log(self, action: act.Log) -> None:
        _log.log(_LEVELS[action.level], "%s %s", self._name, action.text)


_LEVELS = logging.getLevelNamesMapping() | {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def _ignore(action: act.Action) -> None:
    """Do nothing about a call's outcome: the role has no calls."""
