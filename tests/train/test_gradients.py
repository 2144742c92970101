import pytest
import torch
from torch import nn

from bireme.errors import StateError
from bireme.train.gradients import gather
from bireme.train.lineup import Lineup


def make(*grads):
    lineup = Lineup([nn.Linear(2, 1, bias=False) for _ in grads])
    for params, grad in zip(lineup.params, grads, strict=True):
        params[0].grad = grad
    return lineup


def rows(*ids):
    return torch.sparse_coo_tensor(
        torch.tensor([ids]), torch.ones(len(ids), 2), (1, 2), check_invariants=True
    )


def test_scaling_in_place_and_back_and_by_copies():
    grads = [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])]
    found = gather(make(*grads), [0], [0.75, 0.25])
    assert found.dense_positions == [0]
    copies = found.scaled()
    assert [each.tolist() for each in copies[0]] == [[[0.75, 1.5]], [[0.75, 1.0]]]
    assert grads[0].tolist() == [[1.0, 2.0]]
    found.scale_()
    assert grads[0].tolist() == [[0.75, 1.5]]
    found.unscale_()
    assert grads[1].tolist() == [[3.0, 4.0]]


def test_a_weight_of_1_copies_nothing():
    grad = torch.ones(1, 2)
    found = gather(make(grad), [0], [1.0])
    found.scale_()
    assert found.scaled()[0][0] is grad
    assert grad.tolist() == [[1.0, 1.0]]


def test_what_is_missing_is_zero_and_what_nobody_has_is_left_out():
    lineup = make(None, torch.ones(1, 2))
    assert gather(lineup, [0], [0.5, 0.5]).dense[0][0].tolist() == [[0.0, 0.0]]
    nothing = gather(make(None, None), [0], [0.5, 0.5])
    assert (nothing.dense, nothing.rows, nothing.scaled()) == ([], [], [])


@pytest.mark.parametrize("stale", [torch.full((1, 2), torch.nan), rows(0), None])
def test_a_replica_of_weight_0_is_zero(stale):
    lineup = make(stale, torch.ones(1, 2))
    assert gather(lineup, [0], [0.0, 1.0]).dense[0][0].tolist() == [[0.0, 0.0]]
    lineup = make(stale, rows(0))
    assert gather(lineup, [0], [0.0, 1.0]).rows[0][0]._nnz() == 0
    lineup = make(stale, None)
    assert gather(lineup, [0], [0.0, 1.0]).dense == []
    assert lineup.params[0][0].grad is None


def test_rows_are_scaled_copies_without_repeats():
    twice = rows(0, 0)
    found = gather(make(twice, rows(0)), [0], [0.5, 0.5])
    assert found.rows_positions == [0]
    assert found.rows[0][0].is_coalesced()
    assert found.rows[0][0].to_dense().tolist() == [[1.0, 1.0]]
    assert twice._values().tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_rows_meet_a_dense_gradient():
    found = gather(make(rows(0, 0), torch.ones(1, 2)), [0], [0.5, 0.5])
    assert [grad.tolist() for grad in found.dense[0]] == [[[2.0, 2.0]], [[1.0, 1.0]]]


def test_values_of_stride_0_are_not_lost():
    lineup = Lineup([nn.Embedding(3, 1, sparse=True) for _ in range(2)])
    lineup.modules[0](torch.tensor([1])).sum().backward()
    lineup.params[1][0].grad = torch.zeros(3, 1)
    assert gather(lineup, [0], [0.5, 0.5]).dense[0][0].flatten().tolist() == [0.0, 1.0, 0.0]


def test_half_frozen_parameters_are_named():
    lineup = make(None, torch.ones(1, 2))
    lineup.params[0][0].requires_grad_(False)
    with pytest.raises(StateError, match=r"'weight' is frozen on replicas \[0\] only"):
        gather(lineup, [0], [0.5, 0.5])
    assert lineup.params[0][0].grad is None


def test_gradients_that_share_memory_are_parted():
    shared = torch.ones(1, 2)
    found = gather(make(shared, shared, shared), [0], [0.5, 0.25, 0.25])
    found.scale_()
    assert [grad.tolist() for grad in found.dense[0]] == [[[0.5, 0.5]], *[[[0.25, 0.25]]] * 2]
    expanded = torch.ones(1, 1).expand(1, 2)
    lineup = make(expanded, torch.ones(1, 2))
    found = gather(lineup, [0], [0.5, 0.5])
    found.scale_()
    assert lineup.params[0][0].grad.tolist() == [[0.5, 0.5]]
