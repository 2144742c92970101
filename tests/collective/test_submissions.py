"""Calls of several operations end as one."""

import torch

from bireme.collective import Handle
from bireme.collective.checks import DTYPES
from bireme.collective.submissions import Call, Reducing, dtype_name, request_of
from bireme.core.negotiation.messages import Kind
from bireme.types import ReduceOp


def test_a_call_ends_with_its_last_operation():
    call = Call(Handle(1, "a"), 2, tuple)
    call.finish(1, "second")
    assert not call.handle.done()
    call.finish(0, "first")
    assert call.handle.wait() == ("first", "second")


def test_a_call_fails_with_its_first_failure():
    call = Call(Handle(1, "a"), 2, tuple)
    call.fail(RuntimeError("one"))
    call.fail(RuntimeError("two"))
    call.finish(0, "late")
    call.finish(1, "late")
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
    call.finish(0, "value", event)
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


def test_a_reduction_makes_its_request_when_asked():
    tensor = torch.ones(2, 3)
    make = Reducing("a", tensor, 4, ReduceOp.MAX, (1.0, 0.5), ("g", 2))
    assert make() == request_of(
        "a",
        Kind.ALLREDUCE,
        tensor,
        process_set=4,
        op=ReduceOp.MAX,
        scales=(1.0, 0.5),
        group=("g", 2),
    )
