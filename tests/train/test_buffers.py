import copy

import torch
from torch import nn

from bireme.train.buffers import average_buffers


class Counters(nn.Module):
    def __init__(self, mean, count, seen, *, dtype=torch.float32):
        super().__init__()
        self.register_buffer("mean", torch.tensor([mean], dtype=dtype))
        self.register_buffer("count", torch.tensor(count), persistent=False)
        self.register_buffer("seen", torch.tensor([seen]))


def test_floats_average_integers_and_booleans_take_the_largest():
    modules = [Counters(1.0, 3, False), Counters(3.0, 9, True), Counters(8.0, 1, False)]
    average_buffers(modules, [0.5, 0.25, 0.25])
    for module in modules:
        assert module.mean.item() == 3.25
        assert module.count.item() == 9
        assert module.seen.item() is True


def test_a_replica_of_weight_0_only_receives():
    modules = [Counters(float("nan"), 100, True), Counters(3.0, 9, False)]
    average_buffers(modules, [0.0, 1.0])
    assert modules[0].mean.item() == 3.0
    assert modules[0].count.item() == 9
    assert modules[0].seen.item() is False


def test_half_types_are_summed_in_float32():
    modules = [Counters(40000.0, 0, False, dtype=torch.float16) for _ in range(2)]
    average_buffers(modules, [0.5, 0.5])
    assert modules[1].mean.item() == 40000.0
    assert modules[1].mean.dtype is torch.float16


def test_one_replica_is_left_alone_and_none_means_none():
    module = Counters(1.0, 3, False)
    average_buffers([module], [1.0])
    assert module.mean.item() == 1.0
    average_buffers([nn.Linear(1, 1), nn.Linear(1, 1)], [0.5, 0.5])


def test_equal_statistics_stay_to_the_bit():
    net = nn.BatchNorm1d(3)
    net(torch.randn(5, 3))
    replicas = [copy.deepcopy(net) for _ in range(2)]
    average_buffers(replicas, [0.5, 0.5])
    assert torch.equal(replicas[1].running_var, net.running_var)
