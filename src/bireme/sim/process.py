"""A simulated process: a role's state machine, its links, and the script of its user.

The counterpart of the shells in ``node``. Used by :mod:`bireme.sim.cluster`.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Protocol

from bireme.core.actions import (
    Action,
    Close,
    Complete,
    Connect,
    Deliver,
    EndJob,
    Fail,
    Fill,
    Hold,
    Log,
    OpenRelay,
    Release,
    Send,
)
from bireme.core.bunches import Bunch
from bireme.core.calls import Call
from bireme.core.events import Event, Tick
from bireme.errors import BiremeError
from bireme.sim.clock import Clock
from bireme.sim.express import offer
from bireme.sim.network import Network
from bireme.sim.values import unpack

if TYPE_CHECKING:
    from bireme.types.nodes import NodeId

__all__ = ("Core", "Process", "Script", "User")

_EARLY_S = 1e-9

Script = Generator[list[Call], dict[int, object], None]
"""The user of a worker: yields calls, is sent their results by call number when all are done; a
failed call is raised inside it."""


class Core(Protocol):
    """What all three roles offer."""

    def start(self, now_s: float) -> list[Action]:
        """Begin."""

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take an event."""

    def next_deadline_s(self) -> float | None:
        """Return when a ``Tick`` is due."""


class User:
    """Runs a script against a worker.

    Args:
        script: Makes the generator from this user, which it asks for call numbers and values.
    """

    def __init__(self, script: "Callable[[User], Script]") -> None:
        self.values: dict[tuple[int, int], tuple[int, list[float]]] = {}
        """Version and numbers of the newest values, by slot."""
        self.bunches: tuple[Bunch, ...] = ()
        """Kept by the script."""
        self.error: BiremeError | None = None
        """What the script failed with."""
        self.done = False
        self.durations_s: list[tuple[Call, float]] = []
        """How long each call took, failed ones included."""
        self._last_call = 0
        self._waiting: dict[int, tuple[Call, float]] = {}
        self._results: dict[int, object] = {}
        self._script = script(self)

    def number(self) -> int:
        """Return a new call number."""
        self._last_call += 1
        return self._last_call

    def begin(self, now_s: float) -> list[Call]:
        """Start the script; return its first calls."""
        return self._step(lambda: next(self._script), now_s)

    def take(self, action: Action, now_s: float) -> list[Call]:
        """Take the outcome of a call; return the calls that the script makes next."""
        if isinstance(action, Deliver):
            for key_id, index, version, offset, size in action.entries:
                self.values[key_id, index] = (version, unpack(action.payload, offset, size))
            if action.bunch is not None:
                self._take_bunch(action.bunch, action)
            return []
        assert isinstance(action, Complete | Fail)
        if action.call not in self._waiting:
            return []
        call, since_s = self._waiting.pop(action.call)
        self.durations_s.append((call, now_s - since_s))
        if isinstance(action, Fail):
            self._waiting.clear()
            self._results.clear()
            error = action.error
            return self._step(lambda: self._script.throw(error), now_s)
        self._results[action.call] = action.result
        if self._waiting:
            return []
        results, self._results = self._results, {}
        return self._step(lambda: self._script.send(results), now_s)

    def _take_bunch(self, bunch: Bunch, action: Deliver) -> None:
        assert action.message is not None
        offset, first = 0, action.message.version
        for slot, entry in zip(bunch.slots, action.message.entries, strict=True):
            numbers = unpack(action.payload, offset, entry.payload_bytes)
            self.values[slot] = (first + entry.lead, numbers)
            offset += entry.payload_bytes

    def _step(self, advance: Callable[[], list[Call]], now_s: float) -> list[Call]:
        try:
            calls = advance()
        except StopIteration:
            self.done = True
            return []
        except BiremeError as error:
            self.error = error
            self.done = True
            return []
        for call in calls:
            self._waiting[call.call] = (call, now_s)
        return calls


class Process:
    """One process of the job.

    Args:
        core: Its state machine.
        clock: The virtual time.
        network: How it reaches the others.
        find: Returns the process that is reached by the name of a node.
        user: For a worker.
        on_exit: Called when the job has ended here.
        open_relay: Called when this process is to be the relay of its machine too.
        hastens: Asked for each event whether it is offered to the short way first.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        network: Network,
        find: "Callable[[NodeId], Process | None]",
        user: User | None = None,
        on_exit: "Callable[[Process], None]" = lambda _: None,
        open_relay: "Callable[[Process, OpenRelay], None]" = lambda _, __: None,
        hastens: "Callable[[], bool]" = lambda: False,
    ) -> None:
        self.core = core
        self.user = user
        self.alive = True
        self.host = ""
        """The machine that it runs on."""
        self.exit: EndJob | None = None
        """How the job ended here."""
        self.log: list[Log] = []
        self.num_held = 0
        """Received payloads that are held now."""
        self.released: list[object] = []
        self.keep_released = False
        self.num_hastened = 0
        """Events that took the short way."""
        self._clock = clock
        self._network = network
        self._find = find
        self._on_exit = on_exit
        self._open_relay = open_relay
        self._hastens = hastens
        self.relay: Process | None = None
        """Which lives in this process and dies with it."""
        self._tick_at_s: float | None = None
        self._frozen: list[Event] | None = None

    def start(self) -> None:
        """Begin."""
        self._carry_out(self.core.start(self._clock.now_s))
        if self.user is not None:
            self._call(self.user.begin(self._clock.now_s))

    def receive(self, event: Event) -> None:
        """Take an event now, or when the process is thawed."""
        if self._frozen is not None:
            self._frozen.append(event)
        elif self.alive:
            self._carry_out(self._handle(event))

    def _handle(self, event: Event | Call) -> list[Action]:
        now_s = self._clock.now_s
        actions = offer(self.core, event, now_s) if self._hastens() else None
        if actions is None:
            actions = self.core.handle(event, now_s)  # type: ignore[arg-type]
        else:
            self.num_hastened += 1
        return actions

    def crash(self) -> None:
        """Die: nothing is said, the operating system closes the links."""
        self.alive = False
        if self.relay is not None:
            self.relay.crash()
        for link in self._network.links_of(self):
            self._network.close(link, "connection reset")

    def freeze(self) -> None:
        """Stop doing anything, with all links open."""
        if self._frozen is None:
            self._frozen = []

    def thaw(self) -> None:
        """Go on; what has arrived meanwhile is taken now."""
        frozen, self._frozen = self._frozen or [], None
        for event in frozen:
            self.receive(event)
        self._plan_tick()

    def _call(self, calls: list[Call]) -> None:
        for call in calls:
            self._carry_out(self._handle(call))

    def _carry_out(self, actions: list[Action]) -> None:
        calls: list[Call] = []
        for action in actions:
            if not self.alive:
                return
            if type(action) is Send:
                self._network.send(action.link, action.message, action.payload)
            elif type(action) is Fill:
                filling = bytes(action.message.payload_size())
                self._network.send(action.link, action.message, (filling,))
            elif isinstance(action, Complete | Fail | Deliver):
                if self.user is not None:
                    calls += self.user.take(action, self._clock.now_s)
            else:
                self._other(action)
        self._plan_tick()
        self._call(calls)
        if self.user is not None and self.user.error is not None and self.alive:
            self.crash()

    def _other(self, action: Action) -> None:
        if isinstance(action, Connect):
            self._network.connect(self, action.node, self._find(action.node))
        elif isinstance(action, Close):
            self._network.close(action.link)
        elif isinstance(action, Hold):
            self.num_held += 1
        elif isinstance(action, Release):
            self._release(action)
        elif isinstance(action, Log):
            self.log.append(action)
        elif isinstance(action, OpenRelay):
            self._open_relay(self, action)
        elif isinstance(action, EndJob):
            self.exit = action
            self.alive = False
            if self.relay is not None:
                self.relay.crash()
            for link in self._network.links_of(self):
                self._network.close(link)
            self._on_exit(self)

    def _release(self, action: Release) -> None:
        if self.user is None:
            self.num_held -= 1
        elif self.keep_released:
            self.released.append(action.payload)

    def _plan_tick(self) -> None:
        deadline_s = self.core.next_deadline_s()
        if deadline_s is None or not self.alive:
            return
        if self._tick_at_s is None or deadline_s < self._tick_at_s - _EARLY_S:
            self._tick_at_s = deadline_s
            self._clock.at(deadline_s, self._tick, deadline_s)

    def _tick(self, planned_s: float) -> None:
        if planned_s != self._tick_at_s or not self.alive:
            return
        self._tick_at_s = None
        if self._frozen is None:
            self.receive(Tick())
