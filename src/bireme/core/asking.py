"""What becomes of each call of a worker's user: the requests that carry it out.

Called by :mod:`bireme.core.worker`; the requests are posted at its ``desk``.
"""

from typing import TYPE_CHECKING

from bireme.core.bunches import Bunch
from bireme.core.calls import (
    BarrierCall,
    Call,
    CommandCall,
    DeclareCall,
    InitCall,
    LeaveCall,
    PullCall,
    PushCall,
    ResumeCall,
    RowsCall,
    StatusCall,
)
from bireme.core.desk import Desk
from bireme.core.opencalls import OpenCall
from bireme.core.questions import (
    BarrierRequest,
    CommandRequest,
    DeclareRequest,
    LeaveRequest,
    RoundsRequest,
    StatusQuestion,
)
from bireme.core.requests import SCHEDULER_RANK, Lane, PullRequest, RowsRequest
from bireme.errors import ConfigError, StateError, UnknownKeyError
from bireme.types.nodes import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ("Asking",)


class Asking:
    """Checks calls, opens them, and posts their requests.

    Args:
        desk: Where calls are open and requests are kept until they are answered.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._askers: dict[type, Callable[..., None]] = {
            DeclareCall: self._declare,
            InitCall: self._init,
            PushCall: self.push,
            PullCall: self._pull,
            RowsCall: self._rows,
            CommandCall: self._command,
            BarrierCall: self._barrier,
            ResumeCall: self._resume,
            StatusCall: self._status,
            LeaveCall: self._leave,
        }

    def ask(self, call: Call) -> None:
        """Begin to carry out a call of a job that has started, or the farewell.

        Raises:
            ConfigError: The call cannot be carried out.
            StateError: It cannot at this time.
            UnknownKeyError: It is about a key that this worker did not declare.
        """
        self._askers[type(call)](call)

    def _declare(self, call: DeclareCall) -> None:
        opened = self._desk.calls.open(call, self._desk.now_s)
        number = self._desk.next_number()
        self._desk.post(DeclareRequest(number, opened, call.store, call.keys))

    def _init(self, call: InitCall) -> None:
        slots = [(entry.key_id, entry.index) for entry, _ in call.entries]
        lanes = self._lanes(slots)
        opened = self._open(call, len(lanes))
        for lane, item in zip(lanes, call.entries, strict=True):
            self._desk.lanes.hand_in(opened, lane, item, is_push=False)

    def push(self, call: PushCall) -> None:
        """Hand in a push's contributions; see :meth:`ask`."""
        if not call.weight >= 0:
            raise ConfigError(f"a push's weight must be >= 0, got {call.weight}")
        lanes = self._lanes([entry[:2] for entry in call.entries]) if call.entries else []
        num_slots = len(lanes)
        num_slots += sum([len(self._lanes_of(bunch)) for bunch, _ in call.bunches])
        opened = self._open(call, num_slots)
        for bunch, handle in call.bunches:
            self._desk.lanes.hand_in_bunch(opened, bunch, handle)
        hand_in = self._desk.lanes.hand_in
        for lane, item in zip(lanes, call.entries, strict=True):
            hand_in(opened, lane, item, is_push=True)

    def _pull(self, call: PullCall) -> None:
        desk = self._desk
        lanes = self._lanes(call.slots)
        num_slots = len(lanes) + sum([len(self._lanes_of(bunch)) for bunch in call.bunches])
        opened = self._open(call, num_slots)
        for bunch in call.bunches:
            number, rank = desk.next_number(), desk.lanes.rank
            desk.post(PullRequest.of_bunch(number, opened, bunch, rank, call.priority))
        by_server: dict[int, dict[tuple[int, int], int]] = {}
        for slot, lane in zip(call.slots, lanes, strict=True):
            by_server.setdefault(lane.server, {})[slot] = lane.number + lane.pending
        for server, slots in by_server.items():
            pull = PullRequest(desk.next_number(), opened, server, slots, call.priority)
            pull.rank = desk.lanes.rank
            pull.is_pooled = all([desk.lanes.by_slot[slot].pools for slot in slots])
            desk.post(pull)

    def _rows(self, call: RowsCall) -> None:
        desk, slot = self._desk, (call.key_id, call.index)
        (lane,) = self._lanes([slot])
        opened = desk.calls.open(call, desk.now_s)
        least = lane.number + lane.pending + call.ahead
        rows = (call.payload, call.num_ids)
        number = desk.next_number()
        desk.post(RowsRequest(number, opened, lane.server, slot, least, rows, call.priority))

    def _command(self, call: CommandCall) -> None:
        desk = self._desk
        servers = desk.routes.ranks()
        unknown = sorted(set(call.pieces) - set(servers))
        if unknown:
            raise ConfigError(f"there is no S[{unknown[0]}]; the servers are {servers}")
        opened = desk.calls.open(call, desk.now_s, len(servers))
        for server in servers:
            piece = call.pieces.get(server)
            request = CommandRequest(
                desk.next_number(), opened, server, call.store, call.command, call.body, piece
            )
            desk.lanes.command(request)

    def _barrier(self, call: BarrierCall) -> None:
        desk = self._desk
        opened = desk.calls.open(call, desk.now_s)
        waiting = sum(
            isinstance(each, BarrierRequest) and each.name == call.name
            for each in desk.requests.values()
        )
        number = desk.barriers.get(call.name, 0) + waiting
        desk.post(BarrierRequest(desk.next_number(), opened, call.name, number))

    def _resume(self, call: ResumeCall) -> None:
        desk = self._desk
        wanted = set(call.key_ids)
        lanes = [lane for slot, lane in desk.lanes.by_slot.items() if slot[0] in wanted]
        unknown = sorted(wanted - {slot[0] for slot in desk.lanes.by_slot})
        if unknown:
            raise UnknownKeyError(f"key number {unknown[0]} was not declared by this worker")
        if any(lane.pending or lane.busy for lane in lanes):
            raise StateError("a replacement resumes before its first push, not after")
        servers = desk.routes.ranks()
        opened = desk.calls.open(call, desk.now_s, len(servers))
        for server in servers:
            desk.post(RoundsRequest(desk.next_number(), opened, server, call.key_ids))

    def _status(self, call: StatusCall) -> None:
        desk, role = self._desk, call.node.role
        if role is Role.WORKER or (
            role is Role.SERVER and call.node.rank not in desk.routes.ranks()
        ):
            raise ConfigError(f"a worker can ask the scheduler and the servers, not {call.node}")
        rank = call.node.rank if role is Role.SERVER else SCHEDULER_RANK
        opened = desk.calls.open(call, desk.now_s)
        desk.post(StatusQuestion(desk.next_number(), opened, rank))

    def _leave(self, call: LeaveCall) -> None:
        desk = self._desk
        for each in desk.calls.all():
            desk.fail(each, StateError("the worker leaves the job"))
        self._desk.member.leaving = not call.reason
        opened = desk.calls.open(call, desk.now_s)
        desk.post(LeaveRequest(desk.next_number(), opened, call.reason))

    def _open(self, call: InitCall | PushCall | PullCall, parts: int) -> OpenCall:
        opened = self._desk.calls.open(call, self._desk.now_s, parts)
        if not parts:
            self._desk.complete(opened)
        return opened

    def _lanes_of(self, bunch: Bunch) -> tuple[Lane, ...]:
        if not bunch.lanes:
            bunch.lanes = tuple(self._lanes(bunch.slots))
        return bunch.lanes

    def _lanes(self, slots: "Iterable[tuple[int, int]]") -> list[Lane]:
        """Return the lane of each slot.

        Raises:
            UnknownKeyError: A slot is of no declared key.
            ConfigError: A slot appears twice.
        """
        by_slot = self._desk.lanes.by_slot
        slots = list(slots)
        try:
            lanes = [by_slot[slot] for slot in slots]
        except KeyError as error:
            key_id, index = error.args[0]
            raise UnknownKeyError(
                f"slice {index} of key number {key_id} was not declared by this worker"
            ) from None
        if len(set(slots)) != len(slots):
            raise ConfigError("a slice appears twice in one call; sum its values before")
        return lanes
