"""What every engine refuses before it begins, and what it is given to begin."""

import pytest
import torch

from bireme.collective import Handle, ReduceOp, Topology
from bireme.collective.front import Front, Operation
from bireme.core.negotiation.messages import Kind
from bireme.errors import ConfigError, EngineClosed


class Noted(Front):
    """Begins nothing."""

    def __init__(self):
        super().__init__(Topology.on_one_machine(0, 2), {0: (0, 1), 3: (0,)})
        self.begun = []

    def _begin(self, operation):
        self.begun.append(operation)
        return Handle(1, operation.names[0])


@pytest.fixture
def front():
    return Noted()


def test_operations_are_begun_as_they_were_called(front):
    a, b, out = torch.ones(2), torch.ones(4), torch.zeros(2)
    front.allreduce([a], names=["r"], op=ReduceOp.SUM, prescale=2.0, outs=[out], process_set=3)
    front.allgather([a, b], names=["g", "h"])
    front.reducescatter([a], names=["s"], postscale=0.5)
    front.broadcast(a, 1, name="b", out=out)
    front.alltoall(b, torch.tensor([1, 3], dtype=torch.int32), name="t")
    average = (ReduceOp.AVERAGE, (1.0, 1.0))
    assert front.begun[0][3:6] == (3, (ReduceOp.SUM, (2.0, 1.0)), [out])
    assert [each.kind for each in front.begun] == [
        Kind.ALLREDUCE,
        Kind.ALLGATHER,
        Kind.REDUCESCATTER,
        Kind.BROADCAST,
        Kind.ALLTOALL,
    ]
    assert front.begun[2].how == (ReduceOp.AVERAGE, (1.0, 0.5))
    assert (front.begun[3].root, front.begun[3].outs, front.begun[3].how) == (1, [out], average)
    assert (front.begun[4].rows, front.begun[4].splits_device) == ((1, 3), torch.device("cpu"))
    assert [each.is_single for each in front.begun] == [False, False, False, True, True]
    assert front.process_sets() == {0: (0, 1), 3: (0,)}


@pytest.mark.parametrize(
    "call",
    [
        lambda front, x: front.allreduce([x], names=["a", "b"]),
        lambda front, x: front.allreduce([x, x], names=["a", "a"]),
        lambda front, x: front.allreduce([x], names=["a"], outs=[torch.ones(5)]),
        lambda front, x: front.allreduce([x], names=["a"], prescale=float("nan")),
        lambda front, x: front.allreduce(["x"], names=["a"]),
        lambda front, x: front.allreduce([x], names=["a"], process_set=1),
        lambda front, x: front.allgather([], names=[]),
        lambda front, x: front.allgather(x, names="a"),
        lambda front, x: front.reducescatter([x.bool()], names=["a"], op=ReduceOp.AVERAGE),
        lambda front, x: front.broadcast(x, 2, name="a"),
        lambda front, x: front.broadcast(x, 1, name="a", process_set=3),
        lambda front, x: front.broadcast(x, 0, name="a", out=x.double()),
        lambda front, x: front.alltoall(x, torch.tensor([9, 9], dtype=torch.int32), name="a"),
        lambda front, x: front.alltoall(x.to_sparse(), None, name="a"),
    ],
)
def test_what_is_faulty_is_not_begun(front, call):
    with pytest.raises(ConfigError):
        call(front, torch.ones(2))
    assert front.begun == []


def test_a_closed_one_begins_nothing(front):
    front._closed = True
    with pytest.raises(EngineClosed):
        front.allreduce([torch.ones(2)], names=["a"])


def test_an_operation_is_on_its_own_where_the_result_is():
    assert not Operation(Kind.ALLREDUCE, [], ["a"], 0).is_single
