import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import bireme
from bireme.errors import ConfigError
from bireme.train.computing import Computing
from bireme.train.contexts import Replicas
from bireme.train.evaluating import predict, score
from bireme.train.workload import FixedShares


def computing_of(net, loss=None):
    replicas = Replicas(net, loss, [bireme.cpu(0), bireme.cpu(1)])
    return Computing(replicas, FixedShares([2, 1]), None)


@pytest.fixture
def samples():
    return torch.randn(11, 3), torch.randint(3, (11,))


def test_every_sample_is_predicted_once(samples):
    x, y = samples
    computing = computing_of(nn.Identity())
    for data in (DataLoader(TensorDataset(x, y), 4), DataLoader(TensorDataset(x), 4), x, x.numpy()):
        assert torch.equal(predict(computing, data), x)


def test_every_sample_is_scored_once(samples):
    x, y = samples
    computing = computing_of(nn.Identity(), functional.cross_entropy)
    found = score(computing, DataLoader(TensorDataset(x, y), 4), ["acc", "loss"])
    assert found["accuracy"] == (x.argmax(1) == y).sum().item() / 11
    assert found["loss"] == pytest.approx(functional.cross_entropy(x, y).item())


def test_modes_and_gradients_are_left_alone(samples):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9))
    out = predict(computing_of(net), samples[0])
    assert torch.equal(out, net[0](samples[0]))
    assert net.training
    assert not out.requires_grad


def test_what_cannot_be_scored_is_refused(samples):
    computing = computing_of(nn.Identity())
    with pytest.raises(ConfigError, match="has no loss"):
        score(computing, [samples], "loss")
    with pytest.raises(ConfigError, match="pair"):
        score(computing, [samples[0]], "acc")
    with pytest.raises(ConfigError, match="batch"):
        score(computing, [(samples[0], samples[1][:5])], "acc")
