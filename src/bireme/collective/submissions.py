"""What a rank keeps of an operation until it is over, and what it tells the others of it.

Made by the engine at submission, read by `Execution`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bireme.collective.base import How
from bireme.collective.handles import Handle
from bireme.core.negotiation.messages import Key, Kind, Request
from bireme.types.topology import ReduceOp

__all__ = ("Call", "Lone", "Part", "Piece", "Reducing", "dtype_name", "request_of")


class Call:
    """One submission: a handle, and the operations that it stands for.

    Args:
        handle: Ends when the last operation has, or the first one fails.
        num_pieces: How many operations.
        make_result: Turns the operations' results into the handle's.
    """

    __slots__ = ("_left", "_make_result", "event", "handle", "results")

    def __init__(
        self, handle: Handle, num_pieces: int, make_result: Callable[[list[Any]], Any]
    ) -> None:
        self.handle = handle
        self.results: list[Any] = [None] * num_pieces
        self.event: Any = None
        """Recorded on the caller's CUDA stream at submission; None for tensors on the CPU."""
        self._left = num_pieces
        self._make_result = make_result

    def finish_piece(self, index: int, result: Any, ready: Any = None) -> None:
        """End one operation with its result, which is there once the CUDA event ``ready`` is."""
        self.results[index] = result
        self._left -= 1
        if ready is not None:
            self.handle.add_event(ready)
        if not self._left and not self.handle.has_ended:
            self.handle.finish(self._make_result(self.results))
            self.results = []

    def fail_piece(self, error: BaseException) -> None:
        """End all of it with an error; a second one changes nothing."""
        if not self.handle.has_ended:
            self.handle.fail(error)


class Piece:
    """One operation of a submission."""

    __slots__ = ("call", "index", "out", "splits_device", "tensor")

    def __init__(
        self,
        call: Call,
        index: int,
        tensor: Tensor | None = None,
        out: Tensor | None = None,
        splits_device: torch.device | None = None,
    ) -> None:
        self.call = call
        self.index = index
        self.tensor = tensor
        self.out = out
        self.splits_device = splits_device

    @property
    def event(self) -> Any:
        """See `Call`."""
        return self.call.event

    def end(self, result: Any, ready: Any = None) -> None:
        """See `Call.finish_piece`."""
        self.call.finish_piece(self.index, result, ready)

    def abort(self, error: BaseException) -> None:
        """See `Call.fail_piece`."""
        self.call.fail_piece(error)


class Lone(Handle):
    """An all-reduce of one tensor: its handle, `Call`, `Piece` and maker of a request in one.

    Most submissions are these, a hundred in a step; four objects for each take longer than the
    exchange of a small tensor.
    """

    __slots__ = ("_how", "event", "key", "out", "tensor")

    splits_device = None

    def __init__(
        self,
        number: int,
        drive: Callable[[Any, float | None], None],
        key: Key,
        tensor: Tensor,
        out: Tensor | None,
        how: How,
    ) -> None:
        # As `Handle.__init__`, without the call.
        self.number = number
        self.name = key[1]
        self._drive = drive
        self._is_done = False
        self._result = self._error = self._events = None
        self.event: Any = None
        self.key = key
        self.tensor: Tensor | None = tensor
        self.out = out
        self._how = how

    def __call__(self) -> Request:
        """Return what the rank says of it."""
        assert self.tensor is not None
        process_set, name = self.key
        op, scales = self._how
        return request_of(
            name, Kind.ALLREDUCE, self.tensor, process_set=process_set, op=op, scales=scales
        )

    def end(self, result: Any, ready: Any = None) -> None:
        """See `Call.finish_piece`."""
        if self._is_done:
            return
        if ready is not None:
            self.add_event(ready)
        self.tensor = self.out = None
        # As `Handle.finish`, without the calls.
        self._result = [result]
        self._is_done = True

    def abort(self, error: BaseException) -> None:
        """See `Call.fail_piece`."""
        if not self._is_done:
            self.tensor = self.out = None
            self.fail(error)


Part = Piece | Lone
"""What is known of one operation under way."""

_NAMES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}


def dtype_name(dtype: torch.dtype) -> str:
    """Return an element type as it is told to others.

    Example:
        >>> dtype_name(torch.bfloat16)
        'bfloat16'
    """
    return _NAMES[dtype]


def request_of(
    name: str,
    kind: Kind,
    tensor: Tensor,
    *,
    process_set: int,
    op: ReduceOp = ReduceOp.AVERAGE,
    scales: tuple[float, float] = (1.0, 1.0),
    group: tuple[str, int] = ("", 0),
    aim: tuple[int, tuple[int, ...]] = (-1, ()),
) -> Request:
    """Return what a rank says of an operation on a tensor.

    Args:
        name: The operation's name.
        kind: What it does.
        tensor: What it is done to.
        process_set: Who takes part.
        op: How to reduce.
        scales: Factors before and after.
        group: Its group's name and size.
        aim: The root of a broadcast; the splits of an all-to-all.
    """
    return Request(
        name=name,
        kind=kind,
        dtype=_NAMES[tensor.dtype],
        shape=tuple(tensor.shape),
        device=tensor.device.type,
        op=int(op),
        prescale=float(scales[0]),
        postscale=float(scales[1]),
        root=aim[0],
        process_set=process_set,
        group=group[0],
        group_size=group[1],
        numbers=aim[1],
    )


class Reducing:
    """Makes the `request_of` an all-reduce; one small object, as most are never asked."""

    __slots__ = ("_group", "_how", "_key", "_tensor")

    def __init__(self, key: Key, tensor: Tensor, how: How, group: tuple[str, int]) -> None:
        self._key = key
        self._tensor = tensor
        self._how = how
        self._group = group

    def __call__(self) -> Request:
        """Return the request."""
        process_set, name = self._key
        op, scales = self._how
        return request_of(
            name,
            Kind.ALLREDUCE,
            self._tensor,
            process_set=process_set,
            op=op,
            scales=scales,
            group=self._group,
        )
