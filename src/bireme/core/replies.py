"""Collects the answers that one event brings about, so that each request gets few messages.

Called by :mod:`bireme.core.server`: a bundle that completes the rounds of a hundred slots is
answered by one message to each worker.
"""

from bireme.core.actions import Action, Send
from bireme.errors import BiremeError, ConfigError, StateError, UnknownKeyError, UnsupportedError
from bireme.wire.messages import Ack, Fault, FaultCode, SlotRound, Stale, Value, ValueEntry

__all__ = ("Replies", "fault_code")

_Request = tuple[int, int]


def fault_code(error: BiremeError) -> FaultCode:
    """Return the code by which a worker raises the same class of error.

    Example:
        >>> fault_code(StateError("no optimizer"))
        <FaultCode.WRONG_STATE: 'wrong_state'>
    """
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return FaultCode.INTERNAL


_CODES: tuple[tuple[type[BiremeError], FaultCode], ...] = (
    (UnknownKeyError, FaultCode.UNKNOWN_KEY),
    (UnsupportedError, FaultCode.UNSUPPORTED),
    (ConfigError, FaultCode.BAD_REQUEST),
    (StateError, FaultCode.WRONG_STATE),
)


class _Bundle:
    """Values on their way into one message."""

    __slots__ = ("handles", "priority", "size", "slots")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.slots: list[tuple[int, int, int, int, str]] = []
        """Key, index, version, bytes and encoding of each."""
        self.handles: list[object] = []
        self.size = 0

    def message(self, request: int, view: int) -> Value:
        """Return the message."""
        first = min([slot[2] for slot in self.slots])
        entries = [
            ValueEntry(key, i, version - first, size, encoding)
            for key, i, version, size, encoding in self.slots
        ]
        return Value(request, view, first, tuple(entries))


class Replies:
    """The answers of one event, by link and request."""

    def __init__(self) -> None:
        self.bundle_bytes = 0
        """What a message of several values holds at most: of the job's configuration, once it has
        begun."""
        self._acks: dict[_Request, list[SlotRound]] = {}
        self._values: dict[_Request, _Bundle] = {}
        self._wholes: list[Action] = []
        self._actions: list[Action] = []

    def ack(self, link: int, request: int, key_id: int, index: int, number: int) -> None:
        """Acknowledge a push or an init of one slot."""
        entry = SlotRound(key_id, index, number)
        entries = self._acks.get((link, request))
        if entries is None:
            self._acks[link, request] = [entry]
        else:
            entries.append(entry)

    def value(
        self,
        where: _Request,
        slot: tuple[int, int],
        version: int,
        read: tuple[object, int, str],
        view: int,
        priority: int = 0,
    ) -> None:
        """Send one slot's value.

        Args:
            where: Link and request.
            slot: Key and index.
            version: Of the value.
            read: Its bytes, their number and their encoding.
            view: The newest one.
            priority: Of the message, the same for all values of a request.
        """
        handle, size_bytes, encoding = read
        bundle = self._values.get(where)
        if bundle is not None and bundle.size + size_bytes > self.bundle_bytes:
            self._send_values(where, bundle, view)
            bundle = None
        if bundle is None:
            bundle = self._values[where] = _Bundle(priority)
        bundle.slots.append((*slot, version, size_bytes, encoding))
        bundle.handles.append(handle)
        bundle.size += size_bytes

    def whole(self, link: int, message: Value, handle: object, priority: int) -> None:
        """Send the values of a group of slots, or of one slot, as a message of their own."""
        self._wholes.append(Send(link, message, (handle,), priority))

    def ack_all(self, where: _Request, view: int) -> None:
        """Acknowledge all of a request."""
        self._wholes.append(Send(where[0], Ack(where[1], view, ())))

    def fault(
        self,
        link: int,
        request: int | None,
        error: BiremeError,
        entries: tuple[SlotRound, ...] = (),
    ) -> None:
        """Refuse a request, or some entries of it, for good."""
        self._actions.append(Send(link, Fault(fault_code(error), str(error), request, entries)))

    def stale(self, link: int, request: int, view: int) -> None:
        """Refuse a request of an older view."""
        self._actions.append(Send(link, Stale(view, request)))

    def add(self, action: Action) -> None:
        """Have any other action carried out before the answers."""
        self._actions.append(action)

    def take(self, view: int) -> list[Action]:
        """Return all actions and begin anew."""
        if self._acks:
            # Before the values: a worker frees what is acknowledged, then goes on with a value.
            for (link, request), entries in self._acks.items():
                self._actions.append(Send(link, Ack(request, view, tuple(entries))))
            self._acks.clear()
        if self._wholes:
            self._actions += self._wholes
            self._wholes.clear()
        if self._values:
            for where, bundle in self._values.items():
                self._send_values(where, bundle, view)
            self._values.clear()
        actions, self._actions = self._actions, []
        return actions

    def _send_values(self, where: _Request, bundle: _Bundle, view: int) -> None:
        message = bundle.message(where[1], view)
        self._actions.append(Send(where[0], message, tuple(bundle.handles), bundle.priority))
