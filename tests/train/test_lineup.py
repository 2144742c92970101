import copy

import pytest
import torch
from torch import nn

from bireme.errors import ConfigError
from bireme.train.lineup import Lineup


def make(count=3):
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    return [copy.deepcopy(net) for _ in range(count)]


def test_tied_parameters_appear_once_under_their_first_name():
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    net[1].weight = net[0].weight
    lineup = Lineup([net, copy.deepcopy(net)])
    assert lineup.names == ["0.weight"]
    assert lineup.shape == (2, 1)
    assert lineup.same(0) == [net[0].weight, lineup.modules[1][1].weight]


def test_positions_are_those_of_replica_0():
    lineup = Lineup(make())
    first = lineup.modules[0]
    assert lineup.positions([first[1].bias, first[0].weight]) == [3, 0]
    with pytest.raises(ConfigError, match=r"Parameter of shape \(2,\)"):
        lineup.positions([lineup.modules[1][0].bias])


def test_following_the_first_copies_chosen_parameters_and_buffers():
    lineup = Lineup(make())
    with torch.no_grad():
        for param in lineup.params[0]:
            param.fill_(7.0)
    lineup.modules[0][1].running_mean.fill_(7.0)
    lineup.follow_first([1])
    third = lineup.params[2]
    assert third[1].tolist() == [7.0, 7.0]
    assert not torch.equal(third[0], lineup.params[0][0])
    lineup.follow_first()
    lineup.follow_first([])
    lineup.follow_first_buffers()
    assert all(torch.equal(a, b) for a, b in zip(third, lineup.params[0], strict=True))
    assert lineup.modules[2][1].running_mean.tolist() == [7.0, 7.0]


def test_clearing_leaves_the_first_replica_to_its_optimizer():
    lineup = Lineup(make(2))
    for params in lineup.params:
        params[0].grad = torch.ones(2, 2)
    lineup.clear_grads([0, 1], set_to_none=False)
    assert [params[0].grad.sum().item() for params in lineup.params] == [4.0, 0.0]
    lineup.clear_grads([0, 1], set_to_none=True)
    assert lineup.params[1][0].grad is None


def test_buffers_must_agree_too():
    nets = make(2)
    nets[1][1] = nn.BatchNorm1d(2, track_running_stats=False)
    with pytest.raises(ConfigError, match="replica 1 has other buffers"):
        Lineup(nets)
