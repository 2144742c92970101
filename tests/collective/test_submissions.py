"""Calls of several operations end as one."""

import pytest
import torch

from bireme.collective import Handle
from bireme.collective.checks import DTYPES
from bireme.collective.submissions import Call, Lone, Reducing, dtype_name, request_of
from bireme.core.negotiation.messages import Kind
from bireme.errors import CollectiveError
from bireme.types import ReduceOp


def test_a_call_ends_with_its_last_operation():
    call = Call(Handle(1, "a"), 2, tuple)
    call.finish_piece(1, "second")
    assert not call.handle.done()
    call.finish_piece(0, "first")
    assert call.handle.wait() == ("first", "second")


def test_a_call_fails_with_its_first_failure():
    call = Call(Handle(1, "a"), 2, tuple)
    call.fail_piece(RuntimeError("one"))
    call.fail_piece(RuntimeError("two"))
    call.finish_piece(0, "late")
    call.finish_piece(1, "late")
    assert str(call.handle._error) == "one"


def test_results_wait_for_their_events():
    class Event:
        def __init__(self):
            self.is_there = False

        def query(self):
            return self.is_there

        def synchronize(self):
            self.is_there = True

    event = Event()
    call = Call(Handle(1, "a"), 1, tuple)
    call.finish_piece(0, "value", event)
    assert not call.handle.done()
    assert call.handle.wait() == ("value",)
    assert call.handle.done()


def test_requests_say_what_a_tensor_is():
    request = request_of(
        "a",
        Kind.ALLREDUCE,
        torch.ones(2, 3, dtype=torch.bfloat16),
        process_set=4,
        op=ReduceOp.MAX,
        scales=(2, 0.5),
        group=("a", 2),
        aim=(1, (3, 4)),
    )
    assert (request.dtype, request.shape, request.device) == ("bfloat16", (2, 3), "cpu")
    assert (request.op, request.prescale, request.postscale) == (4, 2.0, 0.5)
    assert (request.group, request.group_size, request.root, request.numbers) == ("a", 2, 1, (3, 4))
    assert request.key == (4, "a")


def test_every_dtype_has_a_name():
    for dtype in DTYPES:
        assert getattr(torch, dtype_name(dtype)) is dtype


def lone(event=None, out=None):
    how = (ReduceOp.SUM, (1.0, 2.0))
    made = Lone(3, lambda handle, timeout_s: None, (4, "a"), torch.ones(2), out, how)
    made.event = event
    return made


def test_one_tensor_is_handle_and_part_in_one():
    part = lone()
    assert (part.id, part.name, part.splits_device) == (3, "a", None)
    tensor = part.tensor
    assert part() == request_of(
        "a", Kind.ALLREDUCE, tensor, process_set=4, op=ReduceOp.SUM, scales=(1.0, 2.0)
    )
    part.end(tensor)
    assert part.wait() == [tensor]
    assert part.tensor is None
    part.abort(RuntimeError("late"))
    assert part.wait() == [tensor]


def test_one_tensor_fails_once():
    part = lone()
    part.abort(CollectiveError("one"))
    part.abort(CollectiveError("two"))
    part.end("late")
    with pytest.raises(CollectiveError, match="one"):
        part.wait()


def test_a_reduction_makes_its_request_when_asked():
    tensor = torch.ones(2, 3)
    make = Reducing((4, "a"), tensor, (ReduceOp.MAX, (1.0, 0.5)), ("g", 2))
    assert make() == request_of(
        "a",
        Kind.ALLREDUCE,
        tensor,
        process_set=4,
        op=ReduceOp.MAX,
        scales=(1.0, 0.5),
        group=("g", 2),
    )
