"""What a worker asks besides values: commands, declarations, barriers, where it stands, farewell.

Requests as those of :mod:`bireme.core.requests`, to the scheduler or to one server each.
Called by :mod:`bireme.core.worker`.
"""

from bireme.core.opencalls import OpenCall
from bireme.core.requests import SCHEDULER_RANK, Request
from bireme.wire.messages import (
    Barrier,
    Command,
    CommandKind,
    Declare,
    KeyDecl,
    Leave,
    Rounds,
    StatusRequest,
)

__all__ = (
    "BarrierRequest",
    "CommandRequest",
    "DeclareRequest",
    "LeaveRequest",
    "RoundsRequest",
    "StatusQuestion",
)


class CommandRequest(Request):
    """A command to one server."""

    __slots__ = ("body", "command", "handle", "size", "store")

    def __init__(
        self,
        number: int,
        call: OpenCall,
        server: int,
        store: int,
        command: CommandKind,
        body: dict[str, object],
        piece: tuple[object, int] | None,
    ) -> None:
        super().__init__(number, call, server)
        self.store = store
        self.command = command
        self.body = body
        self.handle, self.size = piece or (None, 0)

    def message(self, view: int) -> Command:
        """Return the command; its number is the request's."""
        return Command(self.number, view, self.store, self.command, self.body, self.size)

    def payload(self) -> tuple[object, ...]:
        """Return the handle of the bytes that belong to the body."""
        return () if self.handle is None else (self.handle,)


class RoundsRequest(Request):
    """Where this rank stands: for a replacement, or to see whether pushes have arrived."""

    __slots__ = ("about", "key_ids")

    def __init__(
        self,
        number: int,
        call: OpenCall | None,
        server: int,
        key_ids: tuple[int, ...],
        about: tuple[int, ...] = (),
    ) -> None:
        super().__init__(number, call, server)
        self.key_ids = key_ids
        self.about = about
        """Numbers of the push requests in doubt."""

    def message(self, view: int) -> Rounds:
        """Return the question."""
        return Rounds(self.number, view, self.key_ids)


class DeclareRequest(Request):
    """Keys to be declared."""

    __slots__ = ("keys", "store")

    def __init__(self, number: int, call: OpenCall, store: int, keys: tuple[KeyDecl, ...]) -> None:
        super().__init__(number, call, SCHEDULER_RANK)
        self.store = store
        self.keys = keys

    def message(self, view: int) -> Declare:
        """Return the declaration."""
        return Declare(self.number, self.store, self.keys)


class BarrierRequest(Request):
    """A barrier that this worker has reached."""

    __slots__ = ("barrier", "name")

    def __init__(self, number: int, call: OpenCall, name: str, barrier: int) -> None:
        super().__init__(number, call, SCHEDULER_RANK)
        self.name = name
        self.barrier = barrier

    def message(self, view: int) -> Barrier:
        """Return the notice of arrival."""
        return Barrier(self.name, self.barrier)


class LeaveRequest(Request):
    """The farewell."""

    __slots__ = ("reason",)

    def __init__(self, number: int, call: OpenCall, reason: str) -> None:
        super().__init__(number, call, SCHEDULER_RANK)
        self.reason = reason

    def message(self, view: int) -> Leave:
        """Return the farewell."""
        return Leave(self.reason)


class StatusQuestion(Request):
    """Who waits for whom? ``call`` is ``None`` when the worker asks for an inquiry of its own."""

    __slots__ = ()

    def message(self, view: int) -> StatusRequest:
        """Return the question."""
        return StatusRequest(self.number)
