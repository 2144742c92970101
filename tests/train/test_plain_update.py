import torch
from torch import nn

from bireme.train.plain_update import PlainUpdate


def make(**options):
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    net.weight.grad = torch.ones(1, 1)
    return net, PlainUpdate(torch.optim.SGD(net.parameters(), lr=1.0, **options))


def test_a_step_is_the_optimizers():
    net, mode = make()
    assert mode.step(lambda: 3.0, [1.0]) == 3.0
    mode.merge([1.0])
    mode.update(None)
    assert net.weight.item() == -2.0


def test_only_fused_optimizers_take_over_unscaling():
    assert not make()[1].scales
    net, mode = make(fused=True)
    assert mode.scales
    mode.scaled_step(torch.tensor(4.0), torch.tensor(0.0), [1.0])
    assert net.weight.item() == -0.25
    mode.scaled_step(torch.tensor(4.0), torch.tensor(1.0), [1.0])
    assert net.weight.item() == -0.25
