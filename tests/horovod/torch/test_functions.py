import pytest
import torch


def test_parameters_of_every_accepted_kind(hvd):
    model = torch.nn.Linear(2, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_parameters(list(model.named_parameters()), 0)
    hvd.broadcast_parameters(list(model.parameters()), 0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("params", [None, 3, iter([]), torch.ones(1)])
def test_other_kinds_are_value_errors(hvd, params):
    with pytest.raises(ValueError, match="invalid params of type"):
        hvd.broadcast_parameters(params, 0)


def test_a_value_that_is_no_tensor_is_named_before_anything_is_sent(hvd):
    with pytest.raises(ValueError, match=r"'step' is no tensor but int"):
        hvd.broadcast_parameters({"a": torch.ones(1), "step": 3}, 0)


def test_objects(hvd):
    assert hvd.broadcast_object({"a": [1, None]}, 0, name="o") == {"a": [1, None]}
    assert hvd.broadcast_object(None) is None
    assert hvd.allgather_object((1, "x")) == [(1, "x")]
    assert hvd.allgather_object({}, name="n") == [{}]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS])
def test_broadcasting_a_fresh_state_changes_neither_parameters_nor_state(hvd, kind):
    model = torch.nn.Linear(2, 2)
    before = [p.detach().clone() for p in model.parameters()]
    options = {} if kind is torch.optim.LBFGS else {"weight_decay": 0.5}
    optimizer = kind(model.parameters(), lr=0.1, **options)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not optimizer.state
    assert all(torch.count_nonzero(p.grad) == 0 for p in model.parameters())


def test_sparse_parameters_get_no_dense_gradient(hvd):
    model = torch.nn.Embedding(3, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, 0, model)
    assert model.weight.grad is None
    hvd.broadcast_optimizer_state(torch.optim.SparseAdam(model.parameters()), 0)
    assert model.weight.grad is None
