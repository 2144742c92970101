import copy

import pytest
import torch
from torch import nn

from bireme.errors import StateError
from bireme.kvstore import DeviceStore
from bireme.train.exchange import Exchange
from bireme.train.lineup import Lineup
from bireme.train.trainer import Trainer
from bireme.train.worker_update import WorkerUpdate


def test_the_store_holds_merged_gradients_not_weights():
    net = nn.Linear(1, 1, bias=False)
    lineup = Lineup([net, copy.deepcopy(net)])
    store = DeviceStore()
    mode = WorkerUpdate(
        torch.optim.SGD(net.parameters(), lr=1.0), Exchange(lineup, store), compressed=False
    )
    mode.refresh([0])
    start = net.weight.item()
    for value, params in zip([2.0, 6.0], lineup.params, strict=True):
        params[0].grad = torch.full((1, 1), value)
    mode.step(None, [1.0, 1.0])
    assert store.pull("trainer0/weight").item() == 4.0
    assert lineup.params[1][0].item() == pytest.approx(start - 4.0)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_compressor_never_sees_what_is_not_finite(value):
    nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    nn.init.zeros_(nets[0].weight)
    trainer = Trainer(
        nets,
        torch.optim.SGD(nets[0].parameters(), lr=1.0),
        compression={"type": "2bit", "threshold": 0.5},
    )
    for net, grad in zip(nets, [1.0, value], strict=True):
        net.weight.grad = torch.full((1, 1), grad)
    with pytest.raises(StateError, match="not finite"):
        trainer.step()
    assert [net.weight.item() for net in nets] == [0.0, 0.0]
    # Merged by hand, it reaches every replica for all to see, but no residual.
    trainer.allreduce_grads()
    assert all(net.weight.grad.isnan().all() for net in nets)
    for net in nets:
        net.weight.grad = torch.ones(1, 1)
    trainer.step()
    assert [net.weight.item() for net in nets] == [-1.0, -1.0]


def test_residuals_are_kept_between_steps():
    nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    nn.init.zeros_(nets[0].weight)
    trainer = Trainer(
        nets,
        torch.optim.SGD(nets[0].parameters(), lr=1.0),
        compression={"type": "2bit", "threshold": 0.5},
    )
    seen = []
    for _ in range(4):
        for net in nets:
            net.weight.grad = torch.full((1, 1), 0.75)
        trainer.step()
        seen.append(nets[1].weight.item())
    # Each replica sends half its gradient, 0.375, once two of them exceed the threshold.
    assert seen == [0.0, -1.0, -2.0, -3.0]


def test_weights_reach_replicas_before_every_call_of_a_closure():
    nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    nn.init.constant_(nets[0].weight, 3.0)
    trainer = Trainer(nets, torch.optim.LBFGS(nets[0].parameters(), lr=0.5, max_iter=5))
    seen = []

    def closure():
        trainer.zero_grad()
        losses = [net.weight.square().sum() for net in nets]
        for loss in losses:
            loss.backward()
        seen.append([net.weight.item() for net in nets])
        return losses[0].detach()

    trainer.step(closure)
    assert len(seen) == 5
    assert all(first == second for first, second in seen)
    assert len({first for first, _ in seen}) == 5
