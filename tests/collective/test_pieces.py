"""What goes into an exchange, and where results come out."""

import pytest
import torch

from bireme.collective import Handle
from bireme.collective.pieces import are_here, neutral, pack, result_of, strewn, tensor_of
from bireme.collective.submissions import Call, Piece
from bireme.types import ReduceOp


def piece(tensor, out=None):
    return Piece(Call(Handle(1, "a"), 1, list), 0, tensor, out)


def negated(*shape):
    return torch._neg_view(torch.ones(*shape))


def test_a_rank_that_has_joined_one_of_them_is_not_here():
    one = piece(torch.ones(2))
    assert are_here([one, one])
    assert not are_here([one, None])


def test_tensors_reduced_in_place_are_one_list():
    sources, targets = strewn([piece(each, each) for each in torch.ones(2, 3)], "float32", 1.0, 1.0)
    assert targets is sources


def test_results_go_to_their_own_tensors_or_to_new_ones():
    first, second, out = torch.ones(2), torch.ones(3), torch.zeros(2)
    pieces = [piece(first, out), piece(second)]
    sources, targets = strewn(pieces, "float32", 1.0, 1.0)
    assert sources[0] is first
    assert targets[0] is out
    assert targets[1] is not second
    assert targets[1].shape == second.shape


@pytest.mark.parametrize(
    ("tensor", "out"),
    [(None, None), (negated(2), None), (torch.ones(2), negated(2)), (torch.ones(2), torch.ones(3))],
    ids=["ended", "negated", "into a negated one", "into a larger one"],
)
def test_what_does_not_lie_there_as_it_is_goes_through_a_buffer(tensor, out):
    good = piece(torch.ones(2))
    assert strewn([good, good], "float32", 1.0, 1.0) is not None
    assert strewn([good, piece(tensor, out)], "float32", 1.0, 1.0) is None


def test_only_some_types_are_scaled_where_they_lie():
    pieces = [piece(torch.ones(2, dtype=torch.bfloat16))] * 2
    assert strewn(pieces, "bfloat16", 1.0, 1.0) is not None
    assert strewn(pieces, "bfloat16", 1.0, 0.5) is None


def test_a_result_is_the_input_a_given_tensor_or_a_new_one():
    tensor, out = torch.ones(2), torch.zeros(2)
    assert result_of(piece(tensor, tensor)).data_ptr() == tensor.data_ptr()
    assert result_of(piece(tensor, out)) is out
    assert out.tolist() == [1.0, 1.0]
    fresh = piece(tensor)
    assert result_of(fresh) is fresh.out
    assert result_of(piece(tensor, torch.zeros(2)), copy=False).tolist() == [0.0, 0.0]


def test_a_tensor_is_taken_without_its_graph():
    assert not tensor_of(piece(torch.ones(2, requires_grad=True))).requires_grad


@pytest.mark.parametrize(
    ("op", "value"), [(ReduceOp.SUM, 0.0), (ReduceOp.PRODUCT, 1.0), (ReduceOp.MIN, float("inf"))]
)
def test_a_rank_that_has_joined_changes_nothing(op, value):
    views = [torch.full((2,), 7.0), torch.full((1,), 7.0)]
    pack(views, [None, piece(torch.ones(1))], op)
    assert views[0].tolist() == [value] * 2 == [neutral(torch.float32, op)] * 2
    assert views[1].item() == 1.0
