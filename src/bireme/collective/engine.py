"""The engine of a job of several ranks: takes operations, negotiates, and has them run.

Made by `start`. The thread that waits for an operation does what there is to do itself; a keeper
thread does it for operations that nobody waits for (`drive.py`).
"""

import itertools
import os
import time
from collections.abc import Callable, Hashable, Sequence
from operator import is_
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from bireme.collective.base import GLOBAL_SET
from bireme.collective.channel import Channel
from bireme.collective.checks import (
    check_names,
    check_outs,
    check_reduction,
    check_root,
    check_set_ranks,
    check_tensor,
    splits_of,
)
from bireme.collective.drive import Drive
from bireme.collective.handles import Handle
from bireme.collective.negotiating import Entry, Negotiation
from bireme.collective.running import Runner, error_of
from bireme.collective.submissions import Call, Lone, Piece, Reducing, request_of
from bireme.collective.timeline import CollectiveTimeline, timeline_path
from bireme.core.negotiation.member import Stop
from bireme.core.negotiation.messages import Fault, Kind, Request
from bireme.errors import ConfigError, EngineClosed, StateError
from bireme.settings.collective import CollectiveSettings
from bireme.types.topology import ReduceOp, Topology

__all__ = ("Engine",)

_NO_GROUP = ("", 0)
_PLAIN = (Tensor, torch.nn.Parameter)
"""Other subclasses may be anything, and are looked at each time."""

_END_S = 5.0
"""How long closing waits for an exchange that is under way in the keeper."""


class Engine:
    """`Collectives` of one rank of several.

    Args:
        topology: This rank's place.
        channel: Its links to the other ranks; closed with the engine.
        store: A ``torch.distributed`` store with keys of its own for this engine.
        settings: Rank 0's, on every rank.
    """

    def __init__(
        self, topology: Topology, channel: Channel, store: Any, settings: CollectiveSettings
    ) -> None:
        self._topology = topology
        self._channel = channel
        self._numbers = itertools.count(1)
        self._process = os.getpid()
        self._closed = False
        self._negotiation = Negotiation(topology, channel, settings, self._obey)
        self._runner = Runner(topology, store, settings, self._negotiation.lock)
        self._runner.member = self._negotiation.member
        self._runner.on_failure = self._negotiation.fail
        self._drive = Drive(
            self._control,
            self._has_work,
            self._runner.work,
            channel.wake,
            f"bireme-collectives-{topology.rank}",
        )
        self._drive.start()

    @property
    def topology(self) -> Topology:
        """See `Collectives`."""
        return self._topology

    def allreduce(
        self,
        tensors: Sequence[Tensor],
        *,
        names: Sequence[str],
        op: ReduceOp = ReduceOp.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        outs: Sequence[Tensor] | None = None,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.allreduce`."""
        scales = (prescale, postscale)
        if type(tensors) is list and len(tensors) == 1 == len(names):
            return self._allreduce_one(tensors, names, (op, scales), outs, process_set)
        if not isinstance(tensors, list | tuple) or not tensors:
            check_names(tensors, names)
        group = (names[0], len(names)) if len(names) > 1 else _NO_GROUP
        signatures = [
            (tensor.dtype, tensor.shape, tensor.device, tensor.layout, op, scales, group)
            if type(tensor) in _PLAIN
            else None
            for tensor in tensors
        ]
        if not self._is_repeated(tensors, names, outs, signatures, process_set):
            self._check(tensors, names, process_set)
            for tensor in tensors:
                check_reduction(tensor.dtype, op, scales)
            check_outs(tensors, outs)
        call = self._call(names[0], len(names), list, tensors[0])
        entries = []
        for index, name in enumerate(names):
            tensor = tensors[index]
            make = Reducing(name, tensor, process_set, op, scales, group)
            piece = Piece(call, index, tensor, None if outs is None else outs[index])
            entries.append(Entry((process_set, name), signatures[index], piece, make))
        self._submit(entries)
        return call.handle

    def _allreduce_one(
        self,
        tensors: list[Tensor],
        names: Sequence[str],
        how: tuple[ReduceOp, tuple[float, float]],
        outs: Sequence[Tensor] | None,
        process_set: int,
    ) -> Handle:
        """Reduce one tensor; what has been agreed on before passes with few steps of Python."""
        tensor, key = tensors[0], (process_set, names[0])
        signature = None
        if type(tensor) in _PLAIN:
            signature = (tensor.dtype, tensor.shape, tensor.device, tensor.layout, how)
        if (
            signature is None
            or self._negotiation.member.signature_of(key) != signature
            or not tensor.is_contiguous()
            or (outs is not None and outs is not tensors and outs[0] is not tensor)
            or self._closed
            or self._process != os.getpid()
        ):
            self._check(tensors, names, process_set)
            check_reduction(tensor.dtype, *how)
            check_outs(tensors, outs)
        lone = Lone(
            next(self._numbers), self._wait, key, tensor, None if outs is None else outs[0], how
        )
        if tensor.is_cuda:
            lone.event = _event_on(tensor)
        self._submit([Entry(key, signature, lone, lone)])
        return lone

    def allgather(
        self, tensors: Sequence[Tensor], *, names: Sequence[str], process_set: int = GLOBAL_SET
    ) -> Handle:
        """See `Collectives.allgather`."""
        self._check(tensors, names, process_set)
        return self._submit_plainly(Kind.ALLGATHER, tensors, names, process_set)

    def reducescatter(
        self,
        tensors: Sequence[Tensor],
        *,
        names: Sequence[str],
        op: ReduceOp = ReduceOp.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.reducescatter`."""
        self._check(tensors, names, process_set)
        for tensor in tensors:
            check_reduction(tensor.dtype, op, (prescale, postscale))
        return self._submit_plainly(
            Kind.REDUCESCATTER, tensors, names, process_set, op=op, scales=(prescale, postscale)
        )

    def broadcast(
        self,
        tensor: Tensor,
        root_rank: int,
        *,
        name: str,
        out: Tensor | None = None,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.broadcast`."""
        self._check([tensor], [name], process_set)
        check_root(root_rank, self._runner.sets[process_set])
        check_outs([tensor], None if out is None else [out])
        return self._submit_plainly(
            Kind.BROADCAST,
            [tensor],
            [name],
            process_set,
            outs=[out],
            aim=(root_rank, ()),
            only=True,
        )

    def alltoall(
        self,
        tensor: Tensor,
        splits: Tensor | None,
        *,
        name: str,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """See `Collectives.alltoall`."""
        self._check([tensor], [name], process_set)
        rows = splits_of(tensor, splits, len(self._runner.sets[process_set]), name)
        device = splits.device if splits is not None else torch.device("cpu")
        return self._submit_plainly(
            Kind.ALLTOALL,
            [tensor],
            [name],
            process_set,
            aim=(-1, rows),
            only=True,
            splits_device=device,
        )

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

    def process_sets(self) -> dict[int, tuple[int, ...]]:
        """See `Collectives.process_sets`."""
        return dict(self._runner.sets)

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
        if self._closed or os.getpid() != self._process:
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
        self._runner.close()
        self.stop_timeline()

    # Submitting.

    def _submit_plainly(
        self,
        kind: Kind,
        tensors: Sequence[Tensor],
        names: Sequence[str],
        process_set: int,
        *,
        outs: Sequence[Tensor | None] | None = None,
        only: bool = False,
        splits_device: torch.device | None = None,
        **details: Any,
    ) -> Handle:
        """Submit operations that all take the same ``details`` of `request_of`."""
        if len(names) > 1:
            details["group"] = (names[0], len(names))
        call = self._call(names[0], len(names), _first if only else list, tensors[0])
        fixed = tuple(details.values())
        entries = []
        for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):

            def make(name: str = name, tensor: Tensor = tensor) -> Request:
                return request_of(name, kind, tensor, process_set=process_set, **details)

            signature = (int(kind), tensor.dtype, tensor.shape, tensor.device.type, *fixed)
            out = None if outs is None else outs[index]
            piece = Piece(call, index, tensor, out, splits_device)
            entries.append(Entry((process_set, name), signature, piece, make))
        self._submit(entries)
        return call.handle

    def _submit_control(self, request: Request, make_result: Callable[[list[Any]], Any]) -> Handle:
        call = self._call(request.name, 1, make_result)
        entry = Entry(request.key, None, Piece(call, 0), lambda: request)
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
        stop = self._runner.stop
        if stop is not None:
            raise error_of(stop.fault, stop.message)
        if self._negotiation.submit(entries):
            self._drive.nudge()
        if self._runner.stop is not None:
            # It came in between: nobody would end what has been submitted now.
            with self._negotiation.lock:
                self._runner.halt(self._runner.stop)

    def _check_set(self, process_set: int) -> None:
        if self._closed:
            raise EngineClosed("the collectives have been shut down; start them again")
        if os.getpid() != self._process:
            raise StateError(
                "collectives cannot be used in a forked child; use them in the process that "
                "started them, or start the child with the spawn method"
            )
        ranks = self._runner.sets.get(process_set)
        if ranks is None:
            raise ConfigError(
                f"there is no process set {process_set}, only {sorted(self._runner.sets)}"
            )
        if self._topology.rank not in ranks:
            raise ConfigError(
                f"Rank {self._topology.rank} is not a member of the provided process set "
                f"{process_set}: {list(ranks)}"
            )

    def _is_repeated(
        self,
        tensors: Sequence[Tensor],
        names: Sequence[str],
        outs: Sequence[Tensor] | None,
        signatures: Sequence[Hashable],
        process_set: int,
    ) -> bool:
        """Whether checks can be left out: all ranks have agreed on operations just like these."""
        if self._closed or len(names) != len(tensors):
            return False
        known = self._negotiation.member.signature_of
        for tensor, name, signature in zip(tensors, names, signatures, strict=True):
            if (
                signature is None
                or known((process_set, name)) != signature
                or not tensor.is_contiguous()
            ):
                return False
        if outs is not None and outs is not tensors and not all(map(is_, outs, tensors)):
            return False
        is_one = len(names) == 1
        return os.getpid() == self._process and (is_one or len(set(names)) == len(names))

    def _check(self, tensors: Sequence[Tensor], names: Sequence[str], process_set: int) -> None:
        self._check_set(process_set)
        check_names(tensors, names)
        for tensor, name in zip(tensors, names, strict=True):
            check_tensor(tensor, name)

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


def _event_on(tensor: Tensor) -> Any:
    """Return an event after which the tensor is what it is in the caller's stream now."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(tensor.device))
    return event


def _first(values: list[Any]) -> Any:
    return values[0]
