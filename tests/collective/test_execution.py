"""Buckets on a plane of one rank, whose exchanges change nothing."""

import pytest
import torch

from bireme.collective import Handle
from bireme.collective.execution import Execution
from bireme.collective.submissions import Call, Piece
from bireme.core.negotiation.fusion import Planned, elements_of, fuse
from bireme.core.negotiation.messages import Kind, Request
from bireme.types import ReduceOp

CPU = torch.device("cpu")


class Alone:
    """A plane of two ranks that have the same tensors."""

    name = "FAKE"
    rank = 0
    size = 2
    reduces_many = False

    def __init__(self):
        self.calls = []

    def all_reduce(self, flat, op):
        self.calls.append((op, flat.clone()))
        if op is ReduceOp.SUM:
            flat.mul_(2)


class Straight(Alone):
    """Takes many tensors where they lie."""

    reduces_many = True

    def all_reduce_many(self, sources, targets, op, factors):
        self.calls.append((op, factors, list(sources)))
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source * factors[0] * 2 * factors[1])


def bucket_of(*tensors, op=ReduceOp.SUM, prescale=1.0, postscale=1.0):
    planned = []
    for number, tensor in enumerate(tensors):
        request = Request(
            str(number),
            Kind.ALLREDUCE,
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            op=int(op),
            prescale=prescale,
            postscale=postscale,
        )
        planned.append(Planned(request, num_elements=elements_of(request)))
    (bucket,) = fuse(planned, 1 << 20)
    return bucket


def piece_of(tensor, out=None):
    return Piece(Call(Handle(1, "a"), 1, list), 0, tensor, out)


def run(bucket, pieces, plane=None):
    execution = Execution()
    found = execution.run(bucket, pieces, plane or Alone(), (0, 1), CPU)
    return [result for _, result in found]


def test_one_tensor_is_reduced_where_it_is():
    tensor = torch.ones(3)
    plane = Alone()
    (result,) = run(bucket_of(tensor), [piece_of(tensor, tensor)], plane)
    assert result is tensor
    assert tensor.tolist() == [2.0] * 3


def test_a_bucket_is_exchanged_once_and_its_memory_is_kept():
    tensors = [torch.ones(2, 2), torch.full((3,), 5.0)]
    bucket, plane, execution = bucket_of(*tensors, prescale=2.0), Alone(), Execution()
    for _ in range(2):
        pieces = [piece_of(tensor) for tensor in tensors]
        found = execution.run(bucket, pieces, plane, (0, 1), CPU)
        assert [piece for piece, _ in found] == pieces
        assert [result.tolist() for _, result in found] == [[[4.0, 4.0], [4.0, 4.0]], [20.0] * 3]
    assert len(plane.calls) == 2
    assert plane.calls[0][1].tolist() == [2.0] * 4 + [10.0] * 3
    views = bucket.cache[1]
    execution.run(bucket, [piece_of(tensor) for tensor in tensors], plane, (0, 1), CPU)
    assert bucket.cache[1] is views
    execution.release_memory()


@pytest.mark.parametrize(
    ("dtype", "op", "expected"),
    [
        (torch.float32, ReduceOp.SUM, 0),
        (torch.float32, ReduceOp.AVERAGE, 0),
        (torch.float32, ReduceOp.MIN, float("inf")),
        (torch.float32, ReduceOp.MAX, float("-inf")),
        (torch.int8, ReduceOp.MIN, 127),
        (torch.int8, ReduceOp.MAX, -128),
        (torch.int64, ReduceOp.PRODUCT, 1),
    ],
)
def test_a_rank_without_data_changes_nothing(dtype, op, expected):
    tensors = [torch.ones(1, dtype=dtype), torch.ones(2, dtype=dtype)]
    for number in (1, 2):
        plane = Alone()
        run(bucket_of(*tensors[:number], op=op), [None] * number, plane)
        assert set(plane.calls[0][1].tolist()) == {expected}
    plane = Alone()
    found = run(bucket_of(*tensors, op=op), [None, piece_of(tensors[1])], plane)
    assert len(found) == 1
    assert plane.calls[0][1].tolist() == [expected, 1, 1]


@pytest.mark.parametrize(
    ("op", "as_bytes"),
    [
        (ReduceOp.SUM, ReduceOp.MAX),
        (ReduceOp.MAX, ReduceOp.MAX),
        (ReduceOp.MIN, ReduceOp.MIN),
        (ReduceOp.PRODUCT, ReduceOp.MIN),
    ],
)
def test_truth_values_are_reduced_as_bytes(op, as_bytes):
    tensor = torch.tensor([True, False])
    plane = Alone()
    run(bucket_of(tensor, op=op), [piece_of(tensor)], plane)
    assert plane.calls[0][0] is as_bytes
    plane = Alone()
    run(bucket_of(tensor, op=op), [None], plane)
    neutral = op in (ReduceOp.MIN, ReduceOp.PRODUCT)
    assert plane.calls[0][1].bool().tolist() == [neutral, neutral]


def test_a_plane_that_takes_many_tensors_gets_them_as_they_are():
    tensors = [torch.ones(2, 2), torch.full((3,), 5.0)]
    plane = Straight()
    bucket = bucket_of(*tensors, op=ReduceOp.AVERAGE, prescale=3.0)
    versions = [tensor._version for tensor in tensors]
    first, second = run(bucket, [piece_of(tensors[0], tensors[0]), piece_of(tensors[1])], plane)
    assert first is tensors[0]
    assert first.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert second.tolist() == [15.0] * 3
    assert tensors[1].tolist() == [5.0] * 3
    ((op, factors, sources),) = plane.calls
    assert (op, factors) == (ReduceOp.SUM, (3.0, 0.5))
    assert all(source is tensor for source, tensor in zip(sources, tensors, strict=True))
    assert tensors[0]._version > versions[0]


@pytest.mark.parametrize(
    ("tensors", "prescale"),
    [
        ([torch.tensor([True]), torch.tensor([False])], 1.0),
        ([torch.ones(1, dtype=torch.complex64)] * 2, 1.0),
        ([torch.ones(1, dtype=torch.float16)] * 2, 0.5),
        ([torch.ones(1, dtype=torch.int32)] * 2, 0.5),
        ([torch.ones(1), torch.ones(1, dtype=torch.complex64).conj().imag], 1.0),
        ([torch.ones(1), None], 1.0),
    ],
)
def test_others_go_by_the_buffer_all_the_same(tensors, prescale):
    plane = Straight()
    like = [torch.ones(1) if tensor is None else tensor for tensor in tensors]
    bucket = bucket_of(*like, prescale=prescale)
    pieces = [None if tensor is None else piece_of(tensor) for tensor in tensors]
    assert len(run(bucket, pieces, plane)) == sum(piece is not None for piece in pieces)
    assert all(len(call) == 2 for call in plane.calls)
    assert plane.calls
