import contextlib

import pytest
import torch
from torch import nn

import bireme
from bireme.errors import ConfigError
from bireme.train.computing import Computing, scalar
from bireme.train.contexts import Replicas
from bireme.train.workload import FixedShares


def computing_of(net, loss=nn.functional.mse_loss, loads=(3, 1), amp_dtype=None):
    contexts = [bireme.cpu(index) for index in range(len(loads))]
    return Computing(Replicas(net, loss, contexts), FixedShares(loads), amp_dtype)


def test_a_step_joins_outputs_and_weighs_the_loss():
    net = nn.Linear(2, 1)
    computing = computing_of(net)
    data, label = torch.randn(7, 2), torch.randn(7, 1)
    step = computing.train(data, label, want_pred=True)
    assert list(step.sizes) == [5, 2]
    assert step.num_samples == 7
    assert torch.allclose(step.pred, net(data))
    assert torch.equal(step.label, label)
    assert torch.allclose(step.loss, nn.functional.mse_loss(net(data), label))
    assert not step.pred.requires_grad
    assert computing.take_counts() == [5, 2]
    assert computing.take_counts() == [0, 0]


def test_gradients_are_of_each_slices_own_mean():
    net = nn.Linear(2, 1)
    computing = computing_of(net)
    data, label = torch.randn(4, 2), torch.randn(4, 1)
    computing.train(data, label, want_pred=False)
    for each, part in zip(computing.nets, [slice(0, 3), slice(3, 4)], strict=True):
        loss = nn.functional.mse_loss(net(data[part]), label[part])
        (expected,) = torch.autograd.grad(loss, net.weight)
        assert torch.allclose(each.weight.grad, expected)


def test_outputs_may_be_nested():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1, 1)

        def forward(self, x):
            return {"mean": self.linear(x), "twice": (2 * x,)}

    computing = computing_of(Two())
    data = torch.arange(4.0)[:, None]
    assert torch.equal(computing.infer(data)["twice"][0], 2 * data)


def test_an_output_without_a_batch_is_refused():
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean()

    with pytest.raises(ConfigError, match="batch along axis 0"):
        computing_of(Mean()).infer(torch.ones(4))
    with pytest.raises(ConfigError, match="no samples"):
        computing_of(nn.Identity()).infer(torch.ones(0, 2))


def test_modes_of_single_parts_survive():
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    net.train()
    net[1].eval()
    computing = computing_of(net)
    with computing.mode(training=False):
        assert not any(part.training for each in computing.nets for part in each.modules())
    with contextlib.suppress(KeyError), computing.mode(training=True):
        assert all(part.training for each in computing.nets for part in each.modules())
        raise KeyError
    for each in computing.nets:
        assert [part.training for part in each.modules()] == [True, True, False]


def test_amp_computes_in_bfloat16_and_keeps_float32_parameters():
    net = nn.Linear(2, 1)
    computing = computing_of(net, amp_dtype=torch.bfloat16)
    step = computing.train(torch.ones(4, 2), torch.zeros(4, 1), want_pred=True)
    assert step.pred.dtype == torch.bfloat16
    assert net.weight.grad.dtype == torch.float32
    assert computing.loss(step.pred, step.label).dtype == torch.float32


def test_a_loss_must_be_one_number():
    assert scalar(torch.ones(1, 1)).shape == ()
    with pytest.raises(ConfigError, match=r"got shape \(3,\); use reduction='mean'"):
        scalar(torch.ones(3))
    with pytest.raises(ConfigError, match="a float"):
        scalar(1.0)


def test_a_loss_is_asked_for_where_it_is_needed():
    computing_of(nn.Linear(2, 1)).need_loss()
    with pytest.raises(ConfigError, match="has no loss; pass one"):
        computing_of(nn.Linear(2, 1), loss=None).need_loss()
