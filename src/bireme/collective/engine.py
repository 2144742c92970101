"""The engine of a job of several ranks: takes operations, negotiates, and has them run.

Made by `start`. The thread that waits for an operation does what there is to do itself; a keeper
thread does it for operations that nobody waits for (`drive.py`).
"""

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import is_
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from bireme.collective.base import GLOBAL_SET, How
from bireme.collective.board import Board
from bireme.collective.channel import Channel
from bireme.collective.checks import check_set_ranks
from bireme.collective.drive import Drive
from bireme.collective.front import Front, Operation
from bireme.collective.handles import Handle
from bireme.collective.lineage import Lineage
from bireme.collective.negotiating import Entry, Negotiation
from bireme.collective.running import Runner, error_of
from bireme.collective.submissions import Call, Lone, Piece, Reducing, request_of
from bireme.collective.timeline import CollectiveTimeline, timeline_path
from bireme.core.negotiation.member import Stop
from bireme.core.negotiation.messages import Fault, Key, Kind, Request
from bireme.errors import ConfigError, StateError
from bireme.settings.collective import CollectiveSettings
from bireme.types.topology import Topology
from bireme.update.layout import lies_plain

__all__ = ("Engine",)

_NO_GROUP = ("", 0)
_PLAIN = (Tensor, torch.nn.Parameter)
"""Other subclasses may be anything, and are looked at each time."""

_END_S = 5.0
"""How long closing waits for an exchange that is under way in the keeper."""


class Engine(Front):
    """`Collectives` of one rank of several.

    Args:
        topology: This rank's place.
        channel: Its links to the other ranks; closed with the engine.
        store: A ``torch.distributed`` store with keys of its own for this engine.
        settings: Rank 0's, on every rank.
        board: Where the ranks agree on repeated steps, if all are on one machine; closed with
            the engine.
    """

    def __init__(
        self,
        topology: Topology,
        channel: Channel,
        store: Any,
        settings: CollectiveSettings,
        board: Board | None = None,
    ) -> None:
        self._channel = channel
        self._lineage = Lineage()
        self._negotiation = Negotiation(topology, channel, settings, self._obey, board)
        self._runner = Runner(topology, store, settings, self._negotiation.lock)
        super().__init__(topology, self._runner.sets)
        self._runner.member = self._negotiation.member
        self._runner.on_failure = self._negotiation.fail
        self._drive = Drive(
            self._control,
            self._has_work,
            self._runner.work,
            self._negotiation.wake,
            f"bireme-collectives-{topology.rank}",
        )
        self._drive.start()

    def allreduce_again(
        self, key: Key, tensor: Tensor, out: Tensor | None, how: How
    ) -> Lone | None:
        """See `Collectives.allreduce_again`."""
        if self._closed or self._runner.stop is not None or not self._lineage.is_here:
            return None
        if type(tensor) not in _PLAIN or not lies_plain(tensor):
            return None
        signature = (tensor.dtype, tensor.shape, tensor.device, tensor.layout, how, _NO_GROUP)
        lone = Lone(next(self._numbers), self._wait, key, tensor, out, how)
        if tensor.is_cuda:
            lone.event = _event_on(tensor)
        negotiation = self._negotiation
        with negotiation.lock:
            is_news = negotiation.member.submit_again(key, signature, lone, lone)
        if is_news is None:
            return None
        if is_news or self._runner.stop is not None:
            self._submitted(is_news)
        return lone

    def barrier(self, process_set: int = GLOBAL_SET) -> Handle:
        """See `Collectives.barrier`."""
        self._check_set(process_set)
        request = Request("barrier.noname", Kind.BARRIER, process_set=process_set)
        return self._submit_control(request, lambda values: None)

    def join(self, device: int = -1) -> Handle:
        """See `Collectives.join`."""
        self._check_set(GLOBAL_SET)
        self._runner.join_device = device
        return self._submit_control(Request("join.noname", Kind.JOIN), _first)

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """See `Collectives.add_process_set`."""
        self._check_set(GLOBAL_SET)
        chosen = check_set_ranks(ranks, self._topology.size)
        request = Request("process_set.add", Kind.ADD_SET, numbers=chosen)
        return int(self._submit_control(request, _first).wait())

    def remove_process_set(self, process_set: int) -> bool:
        """See `Collectives.remove_process_set`."""
        self._check_set(GLOBAL_SET)
        request = Request("process_set.remove", Kind.REMOVE_SET, numbers=(process_set,))
        return bool(self._submit_control(request, _first).wait())

    def start_timeline(self, path: str | PathLike[str], mark_cycles: bool = False) -> None:
        """See `Collectives.start_timeline`."""
        self._check_set(GLOBAL_SET)
        place = timeline_path(path, self._topology.rank)
        if place is not None:
            self.stop_timeline()
            timeline = CollectiveTimeline(place, mark_cycles=mark_cycles)
            self._runner.execution.timeline = timeline
            self._negotiation.trace(timeline)

    def stop_timeline(self) -> None:
        """See `Collectives.stop_timeline`."""
        timeline = self._negotiation.timeline
        self._negotiation.trace(None)
        self._runner.execution.timeline = None
        if timeline is not None:
            timeline.close()

    def close(self) -> None:
        """See `Collectives.close`."""
        if self._closed or not self._lineage.is_here:
            return
        self._closed = True
        with self._negotiation.lock:
            self._negotiation.leave()
            is_exchanging = self._runner.is_exchanging
            reason = "the collectives were shut down on this rank with this operation under way"
            self._runner.halt(Stop(Fault.CLOSED, reason))
        if is_exchanging:
            self._runner.give_up("shut down")
        self._drive.stop(_END_S)
        self._channel.close()
        self._negotiation.close()
        self._runner.close()
        self.stop_timeline()

    # Submitting.

    def _known(
        self,
        tensors: Sequence[Tensor],
        names: Sequence[str],
        how: How,
        outs: Sequence[Tensor] | None,
        process_set: int,
    ) -> Handle | None:
        if type(tensors) is not list or not tensors or len(names) != len(tensors):
            return None
        if outs is not None and outs is not tensors:
            if len(outs) != len(tensors) or not all(map(is_, outs, tensors)):
                return None
        if len(names) == 1:
            tensor = tensors[0]
            out = None if outs is None else tensor
            return self.allreduce_again((process_set, names[0]), tensor, out, how)
        if self._closed or self._runner.stop is not None or not self._lineage.is_here:
            return None
        group = (names[0], len(names))
        signatures = [_signature(tensor, how, group) for tensor in tensors]
        for tensor, name, signature in zip(tensors, names, signatures, strict=True):
            if not self._is_agreed((process_set, name), tensor, signature):
                return None
        if len(set(names)) < len(names):
            return None
        operation = Operation(Kind.ALLREDUCE, tensors, names, process_set, how, outs)
        return self._reduce_group(operation, signatures)

    def _is_agreed(self, key: Key, tensor: Tensor, signature: Hashable) -> bool:
        """Whether all ranks have agreed on an operation just like this, which needs no checks."""
        return (
            signature is not None
            and self._negotiation.member.signature_of(key) == signature
            and lies_plain(tensor)
        )

    def _begin(self, operation: Operation) -> Handle:
        kind, tensors, names, process_set, how, outs, *_ = operation
        if kind is not Kind.ALLREDUCE:
            return self._begin_other(operation)
        if len(names) > 1:
            group = (names[0], len(names))
            return self._reduce_group(operation, [_signature(each, how, group) for each in tensors])
        key, out = (process_set, names[0]), None if outs is None else outs[0]
        signature = _signature(tensors[0], how, _NO_GROUP)
        return self._reduce_one(key, tensors[0], out, how, signature)

    def _reduce_one(
        self, key: Key, tensor: Tensor, out: Tensor | None, how: How, signature: Hashable
    ) -> Handle:
        lone = Lone(next(self._numbers), self._wait, key, tensor, out, how)
        if tensor.is_cuda:
            lone.event = _event_on(tensor)
        self._check_running()
        is_news = self._negotiation.submit_one(key, signature, lone, lone)
        self._submitted(is_news)
        return lone

    def _reduce_group(self, operation: Operation, signatures: Sequence[Hashable]) -> Handle:
        _, tensors, names, process_set, how, outs, *_ = operation
        call, group = self._call(names[0], len(names), list, tensors[0]), (names[0], len(names))
        entries = []
        for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
            key = (process_set, name)
            piece = Piece(call, index, tensor, None if outs is None else outs[index])
            make = Reducing(key, tensor, how, group)
            entries.append(Entry(key, signatures[index], piece, make))
        self._submit(entries)
        return call.handle

    def _begin_other(self, operation: Operation) -> Handle:
        """Submit what is no all-reduce."""
        kind, tensors, names, process_set, how, outs, root, rows, splits_device = operation
        group = (names[0], len(names)) if len(names) > 1 else _NO_GROUP
        make_result = _first if operation.is_single else list
        call = self._call(names[0], len(names), make_result, tensors[0])
        entries = []
        for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
            request = request_of(
                name,
                kind,
                tensor,
                process_set=process_set,
                op=how[0],
                scales=how[1],
                group=group,
                aim=(root, rows),
            )
            piece = Piece(call, index, tensor, outs[index] if outs else None, splits_device)
            entries.append(Entry(request.key, request, piece, partial(_same, request)))
        self._submit(entries)
        return call.handle

    def _submit_control(self, request: Request, make_result: Callable[[list[Any]], Any]) -> Handle:
        call = self._call(request.name, 1, make_result)
        entry = Entry(request.key, None, Piece(call, 0), partial(_same, request))
        self._submit([entry])
        return call.handle

    def _call(
        self,
        name: str,
        num_pieces: int,
        make_result: Callable[[list[Any]], Any],
        tensor: Tensor | None = None,
    ) -> Call:
        handle = Handle(next(self._numbers), name, self._wait)
        call = Call(handle, num_pieces, make_result)
        if tensor is not None and tensor.is_cuda:
            call.event = _event_on(tensor)
        return call

    def _submit(self, entries: Sequence[Entry]) -> None:
        self._check_running()
        self._submitted(self._negotiation.submit(entries))

    def _check_running(self) -> None:
        stop = self._runner.stop
        if stop is not None:
            raise error_of(stop.fault, stop.message)

    def _submitted(self, is_news: bool) -> None:
        if is_news:
            self._drive.nudge()
        if self._runner.stop is not None:
            # It came in between: nobody would end what has been submitted now.
            with self._negotiation.lock:
                self._runner.halt(self._runner.stop)

    def _check_set(self, process_set: int) -> None:
        super()._check_set(process_set)
        if not self._lineage.is_here:
            raise StateError(
                "collectives cannot be used in a forked child; use them in the process that "
                "started them, or start the child with the spawn method"
            )
        ranks = self._sets[process_set]
        if self._topology.rank not in ranks:
            raise ConfigError(
                f"Rank {self._topology.rank} is not a member of the provided process set "
                f"{process_set}: {list(ranks)}"
            )

    # Going on.

    def _wait(self, handle: Handle, timeout_s: float | None) -> None:
        self._drive.until(lambda: handle.has_ended, timeout_s)

    def _obey(self, orders: Sequence[Any]) -> None:
        self._runner.obey(orders)
        if any(isinstance(order, Stop) for order in orders):
            self._negotiation.stopped()

    def _has_work(self) -> bool:
        return self._runner.has_work and not self._channel.has_unsent

    def _control(self, timeout_s: float | None) -> None:
        try:
            self._negotiation.step(timeout_s)
        except Exception as error:
            if self._closed:
                # The channel goes away under the thread that listens.
                time.sleep(0)
                return
            text = f"the control channel failed: {type(error).__name__}: {error}"
            with self._negotiation.lock:
                self._obey([Stop(Fault.BROKEN, text)])


def _signature(tensor: Tensor, how: How, group: tuple[str, int]) -> Hashable:
    """Return what tells an all-reduce from another one of its name; None: look at it each time."""
    if type(tensor) not in _PLAIN:
        return None
    return (tensor.dtype, tensor.shape, tensor.device, tensor.layout, how, group)


def _event_on(tensor: Tensor) -> Any:
    """Return an event after which the tensor is what it is in the caller's stream now."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(tensor.device))
    return event


def _same(request: Request) -> Request:
    return request


def _first(values: list[Any]) -> Any:
    return values[0]
