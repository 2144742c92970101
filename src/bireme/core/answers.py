"""What a worker does with the answers to its requests.

Called by :mod:`bireme.core.worker` with every message that is not about membership. An answer to
a request that is not open any more is a late duplicate and changes nothing.
"""

from itertools import zip_longest
from typing import TYPE_CHECKING

from bireme.core.actions import Deliver, Hold, Log, Release
from bireme.core.bunches import Bunch
from bireme.core.calls import ResumeCall
from bireme.core.desk import Desk
from bireme.core.questions import (
    BarrierRequest,
    CommandRequest,
    DeclareRequest,
    RoundsRequest,
    StatusQuestion,
)
from bireme.core.requests import InitRequest, PullRequest, PushRequest, Request, RowsRequest
from bireme.errors import (
    BiremeError,
    ConfigError,
    JobError,
    StateError,
    UnknownKeyError,
    UnsupportedError,
)
from bireme.wire.messages import (
    Ack,
    BarrierDone,
    CommandDone,
    Declared,
    Declined,
    Fault,
    FaultCode,
    Message,
    RoundsReply,
    Rows,
    Stale,
    Status,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Answers",)

_ERRORS: dict[FaultCode, type[BiremeError]] = {
    FaultCode.BAD_REQUEST: ConfigError,
    FaultCode.UNKNOWN_KEY: UnknownKeyError,
    FaultCode.UNSUPPORTED: UnsupportedError,
    FaultCode.WRONG_STATE: StateError,
    FaultCode.TOO_LARGE: ConfigError,
    FaultCode.INTERNAL: JobError,
}

_RAW = "raw"

_Slot = tuple[int, int]


class Answers:
    """Matches answers with requests and moves their calls on.

    Args:
        desk: Where the requests are.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._receivers: dict[type[Message], Callable[..., None]] = {
            Ack: self._ack,
            Value: self._value,
            Rows: self._rows,
            Declared: self._declared,
            BarrierDone: self._barrier_done,
            CommandDone: self._command_done,
            RoundsReply: self._rounds,
            Status: self._status,
            Stale: self._stale,
            Fault: self._fault,
            Declined: self._declined,
        }

    def take(self, message: Message, payload: object) -> bool:
        """Take an answer; return ``False`` for a message that is none."""
        if type(message) is Value:  # of the answers by far the most
            self._value(message, payload)
            return True
        receiver = self._receivers.get(type(message))
        if receiver is None:
            return False
        receiver(message, payload)
        return True

    def expects(self, message: Value | Rows) -> tuple[int | None, ...]:
        """Return, for each entry, the call that waits for it, or ``None``."""
        request = self._desk.requests.get(message.request)
        call = None if request is None else request.call
        if request is None or call is None or not call.open:
            number = 1 if isinstance(message, Rows) else len(message.entries)
            return (None,) * number
        if isinstance(message, Rows):
            return (call.id if isinstance(request, RowsRequest) else None,)
        if _answered_bunch(request, message) is not None:
            return (call.id,) * len(message.entries)
        wanted = _wanted(request)
        return tuple(
            call.id if (entry.key_id, entry.index) in wanted else None for entry in message.entries
        )

    def _ack(self, message: Ack, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.request)
        if isinstance(request, PushRequest):
            if not request.want_value and request.bunch is not None and not message.entries:
                self._bunch_pushed(request, request.bunch)
            elif not request.want_value:
                slots = _named(message) or list(request.items)
                self._pushed(request, slots, accepted=True)
        elif isinstance(request, InitRequest):
            self._initialised(request, _named(message) or list(request.items))

    def _pushed(self, request: PushRequest, slots: list[_Slot], *, accepted: bool) -> None:
        desk, items, done = self._desk, request.items, 0
        for slot in slots:
            found = items.pop(slot, None)
            if found is not None:
                lane, item = found
                desk.actions.append(Release(item[2]))
                desk.lanes.answered(lane, is_push=True, accepted=accepted)
                done += 1
        if not items:
            desk.drop(request)
        if accepted:
            desk.part_done(request.call, done)

    def _bunch_pushed(self, request: PushRequest, bunch: Bunch) -> None:
        desk = self._desk
        desk.actions.append(Release(request.payload()[0]))
        desk.lanes.bunch_answered(bunch)
        desk.requests.pop(request.number, None)
        desk.part_done(request.call, len(bunch.slots))

    def _initialised(self, request: InitRequest, slots: list[_Slot]) -> None:
        desk, done = self._desk, 0
        for slot in slots:
            found = request.items.pop(slot, None)
            if found is not None:
                lane, item = found
                if item[1] is not None:
                    desk.actions.append(Release(item[1]))
                desk.lanes.answered(lane, is_push=False, accepted=True)
                done += 1
        if not request.items:
            desk.drop(request)
        desk.part_done(request.call, done)

    def _value(self, message: Value, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.request)
        if request is None:
            return
        bunch = _answered_bunch(request, message)
        if bunch is None:
            self._values_of_slots(request, message, payload)
            return
        call = request.call
        if call is not None and call.open:
            desk.actions.append(Deliver(call.id, (), payload, bunch, message))
        if type(request) is PushRequest:
            self._bunch_pushed(request, bunch)
        else:
            desk.drop(request)
            desk.part_done(call, len(bunch.slots))

    def _values_of_slots(self, request: Request, message: Value, payload: object) -> None:
        desk = self._desk
        wanted = _wanted(request)
        offset = 0
        found: list[tuple[int, int, int, int, int]] = []
        for entry in message.entries:
            if (entry.key_id, entry.index) in wanted:
                version = message.version + entry.lead
                found.append((entry.key_id, entry.index, version, offset, entry.payload_bytes))
            offset += entry.payload_bytes
        call = request.call
        if found and call is not None and call.open:
            is_raw = all([entry.encoding == _RAW for entry in message.entries])
            coded = None if is_raw else message
            desk.actions.append(Deliver(call.id, tuple(found), payload, None, coded))
        if isinstance(request, PushRequest):
            self._pushed(request, [each[:2] for each in found], accepted=True)
        elif isinstance(request, PullRequest):
            for each in found:
                del request.slots[each[:2]]
            if not request.slots:
                desk.drop(request)
            desk.part_done(call, len(found))

    def _rows(self, message: Rows, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.request)
        if not isinstance(request, RowsRequest) or request.call is None:
            return
        entry = (message.key_id, message.index, message.version, 0, message.payload_bytes)
        desk.actions.append(Deliver(request.call.id, (entry,), payload))
        desk.drop(request)
        desk.part_done(request.call)

    def _declared(self, message: Declared, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.request)
        if not isinstance(request, DeclareRequest) or request.call is None:
            return
        for key, decl in zip_longest(message.keys, request.keys[: len(message.keys)]):
            desk.lanes.add_key(key, decl)
            if decl is not None:
                desk.actions += desk.handing.declared(decl)
            desk.key_names[key.key_id] = key.name
        desk.drop(request)
        desk.complete(request.call, message.keys)

    def _barrier_done(self, message: BarrierDone, payload: object) -> None:
        desk = self._desk
        for request in list(desk.requests.values()):
            if (
                isinstance(request, BarrierRequest)
                and request.name == message.name
                and request.barrier <= message.number
            ):
                desk.barriers[message.name] = message.number + 1
                desk.drop(request)
                desk.part_done(request.call)

    def _command_done(self, message: CommandDone, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.number)
        if not isinstance(request, CommandRequest) or request.call is None:
            return
        call = request.call
        if call.open:
            held = payload if message.payload_bytes else None
            call.result[request.server] = (message.body, held)
            if held is not None:
                desk.actions.append(Hold(held))
        desk.drop(request)
        desk.lanes.command_answered(request)
        was_open = call.open
        desk.part_done(call)
        if was_open and not call.open:
            desk.release_answers(call)

    def _rounds(self, message: RoundsReply, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.request)
        if not isinstance(request, RoundsRequest):
            return
        desk.drop(request)
        call = request.call
        if call is not None:
            call.result[request.server] = message.entries
            call.remaining -= 1
            if call.remaining == 0 and call.open and isinstance(call.call, ResumeCall):
                desk.complete(call, self._resume(call.call, call.result))
            return
        known = {(each.key_id, each.index): each for each in message.entries}
        for number in request.about:
            push = desk.requests.get(number)
            if not isinstance(push, PushRequest):
                continue
            for slot, (lane, _) in push.items.items():
                entry = known.get(slot)
                if entry is None or entry.next_round <= lane.number or entry.version > lane.number:
                    desk.send(push)
                    break

    def _resume(self, call: ResumeCall, replies: dict[int, object]) -> dict[int, int]:
        """Set the numbers of all slots to where the predecessor stopped; return them by key."""
        lanes = self._desk.lanes.by_slot
        known: dict[_Slot, int] = {
            (entry.key_id, entry.index): entry.next_round
            for entries in replies.values()
            if isinstance(entries, tuple)
            for entry in entries
        }
        slots_of: dict[int, list[_Slot]] = {key_id: [] for key_id in call.key_ids}
        for slot in lanes:
            if slot[0] in slots_of:
                slots_of[slot[0]].append(slot)
        first = {
            key_id: min((known.get(slot, 0) for slot in slots), default=0)
            for key_id, slots in slots_of.items()
        }
        if call.together:
            begun = [
                number for key_id, number in first.items() if _has_value(slots_of, key_id, known)
            ]
            first = {
                key_id: min(begun) if _has_value(slots_of, key_id, known) else number
                for key_id, number in first.items()
            }
        for key_id, slots in slots_of.items():
            for slot in slots:
                lanes[slot].number = first[key_id]
        return first

    def _status(self, message: Status, payload: object) -> None:
        desk = self._desk
        request = desk.requests.get(message.request)
        if not isinstance(request, StatusQuestion):
            return
        desk.drop(request)
        if request.call is not None:
            desk.complete(request.call, message.report)
        else:
            desk.report(message.request, message.report)

    def _stale(self, message: Stale, payload: object) -> None:
        request = None if message.request is None else self._desk.requests.get(message.request)
        if request is not None:
            self._desk.stale(request, message.view)

    def _declined(self, message: Declined, payload: object) -> None:
        request = self._desk.requests.get(message.request)
        if isinstance(request, PushRequest | PullRequest) and request.by_relay:
            self._desk.redirect(request)

    def _fault(self, message: Fault, payload: object) -> None:
        desk = self._desk
        error = _ERRORS[message.code](message.text)
        request = None if message.request is None else desk.requests.get(message.request)
        if request is None:
            if message.request is None:
                desk.actions.append(Log("error", f"refused: {message.text}"))
            return
        slots = _named(message)
        if isinstance(request, PushRequest):
            slots = slots or list(request.items)
            self._pushed(request, slots, accepted=False)
            self._fail_hopeless(slots, error)
        elif isinstance(request, InitRequest):
            self._initialised_not(request, slots or list(request.items))
        else:
            desk.drop(request)
            if isinstance(request, CommandRequest):
                desk.lanes.command_answered(request)
        desk.fail(request.call, error)

    def _initialised_not(self, request: InitRequest, slots: list[_Slot]) -> None:
        call, request.call = request.call, None
        self._initialised(request, slots)
        request.call = call

    def _fail_hopeless(self, slots: list[_Slot], error: BiremeError) -> None:
        """Fail the pulls that wait for a push which was refused, for no push will bring it."""
        lanes = self._desk.lanes.by_slot
        for request in list(self._desk.requests.values()):
            if isinstance(request, PullRequest):
                least = [(slot, request.slots[slot]) for slot in slots if slot in request.slots]
            elif isinstance(request, RowsRequest):
                least = [(request.slot, request.min_version)] if request.slot in slots else []
            else:
                continue
            if any(version > lanes[slot].number + lanes[slot].pending for slot, version in least):
                self._desk.fail(request.call, error)


def _has_value(slots_of: dict[int, list[_Slot]], key_id: int, known: dict[_Slot, int]) -> bool:
    return any(slot in known for slot in slots_of[key_id])


def _answered_bunch(request: Request, message: Value) -> Bunch | None:
    """Return the bunch whose push or pull a message answers as a whole."""
    if type(request) is PushRequest:
        bunch = request.bunch if request.want_value else None
    else:
        bunch = request.bunch if type(request) is PullRequest else None
    return bunch if bunch is not None and bunch.answered_by(message.entries) else None


def _named(message: Ack | Fault) -> list[_Slot]:
    return [(entry.key_id, entry.index) for entry in message.entries]


def _wanted(request: Request) -> dict[_Slot, object]:
    """The slots whose values a request still waits for."""
    if isinstance(request, PushRequest) and request.want_value:
        return request.items  # type: ignore[return-value]
    if isinstance(request, PullRequest):
        return request.slots  # type: ignore[return-value]
    return {}
