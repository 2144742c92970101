import copy

import pytest
import torch
from torch import nn

from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.kvstore import DeviceStore, LocalStore
from bireme.train.store_update import check_runs_in_store
from bireme.train.trainer import Trainer


def make(store, **options):
    nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    nn.init.zeros_(nets[0].weight)
    optimizer = torch.optim.SGD(nets[0].parameters(), lr=1.0, **options)
    return nets, Trainer(nets, optimizer, store, update_on_kvstore=True)


def step(nets, trainer, value=1.0):
    for net in nets:
        net.weight.grad = torch.full((1, 1), value)
    trainer.step()


def test_the_store_holds_weights():
    store = LocalStore()
    nets, trainer = make(store)
    step(nets, trainer)
    assert store.pull("trainer0/weight").item() == nets[1].weight.item() == -1.0


def test_numbers_travel_only_when_they_change(monkeypatch):
    store = DeviceStore()
    sent = []
    monkeypatch.setattr(
        store,
        "set_optimizer",
        lambda spec: sent.append(spec.params["lr"]) or DeviceStore.set_optimizer(store, spec),
    )
    nets, trainer = make(store)
    for lr in (1.0, 1.0, 0.5, 0.5):
        trainer.set_learning_rate(lr)
        step(nets, trainer)
    assert sent == [1.0, 0.5]
    assert nets[0].weight.item() == -3.0


def test_groups_keep_their_own_numbers():
    net = nn.Linear(1, 1)
    for param in net.parameters():
        nn.init.zeros_(param)
    nets = [net, copy.deepcopy(net)]
    groups = [{"params": [net.weight], "lr": 1.0}, {"params": [net.bias], "lr": 0.25}]
    trainer = Trainer(nets, torch.optim.SGD(groups, lr=9.0), update_on_kvstore=True)
    for each in nets:
        each(torch.ones(1, 1)).sum().backward()
    trainer.step()
    trainer.param_groups[1]["lr"] = 0.5
    trainer.step()
    for each in nets:
        assert (each.weight.item(), each.bias.item()) == (-2.0, -0.75)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("compression", [None, {"type": "2bit", "threshold": 0.5}])
def test_weights_changed_here_replace_the_stored_ones_and_keep_the_state(shape, compression):
    class Free(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.zeros(shape))

    nets = [Free(), Free()]
    optimizer = torch.optim.SGD(nets[0].parameters(), lr=1.0, momentum=0.5)
    trainer = Trainer(
        nets, optimizer, update_on_kvstore=True, compression=None if not shape else compression
    )
    for start in (None, 100.0):
        if start is not None:
            with torch.no_grad():
                nets[0].value.fill_(start)
        for net in nets:
            net.value.grad = torch.ones(shape)
        trainer.step()
    for net in nets:
        assert torch.equal(net.value, torch.full(shape, 98.5))


def test_replicas_follow_changed_weights_even_of_parameters_without_gradients():
    net = nn.ModuleList([nn.Linear(1, 1, bias=False) for _ in range(2)])
    nets = [net, copy.deepcopy(net)]
    trainer = Trainer(nets, "sgd", optimizer_params={"lr": 1.0}, update_on_kvstore=True)
    for each in nets:
        for layer in each:
            layer.weight.grad = torch.ones(1, 1)
    trainer.step()
    trainer.zero_grad()
    nn.init.constant_(net[1].weight, 5.0)
    for each in nets:
        each[0].weight.grad = torch.ones(1, 1)
    trainer.step()
    assert [each[1].weight.item() for each in nets] == [5.0, 5.0]
    assert trainer.kvstore.pull("trainer0/1.weight").item() == 5.0


def test_what_a_store_cannot_run():
    params = nn.Linear(1, 1).parameters()
    with pytest.raises(UnsupportedError, match="closure"):
        check_runs_in_store(torch.optim.LBFGS(params), LocalStore())

    class Incapable(LocalStore):
        def is_capable(self, capability):
            return False

    with pytest.raises(ConfigError, match="'local' store cannot run an optimizer"):
        check_runs_in_store(torch.optim.SGD([torch.zeros(1)]), Incapable())


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.5)


def steps(net, stepper, count):
    for _ in range(count):
        net.weight.grad = torch.ones(1, 1)
        stepper.step()


def one(optimizer=None):
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net, adam(net)


def assert_same_states(found, expected):
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for index, state in expected["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(found["state"][index][name], value)


def test_the_optimizers_own_state_dict_is_that_of_the_store():
    net, plain = one()
    steps(net, plain, 3)
    net, optimizer = one()
    trainer = Trainer(net, optimizer, "device", update_on_kvstore=True)
    steps(net, trainer, 3)
    for stepper in (optimizer, trainer):
        assert_same_states(stepper.state_dict(), plain.state_dict())


@pytest.mark.parametrize("through", ["trainer", "optimizer"])
def test_a_plain_state_goes_on_in_the_store_and_back(through):
    net, plain = one()
    steps(net, plain, 3)
    saved, weight = copy.deepcopy(plain.state_dict()), net.weight.detach().clone()
    steps(net, plain, 2)
    expected = net.weight.detach().clone()

    net, optimizer = one()
    trainer = Trainer(net, optimizer, "device", update_on_kvstore=True)
    net.weight.data.copy_(weight)
    (trainer if through == "trainer" else optimizer).load_state_dict(saved)
    steps(net, trainer, 1)
    back, other = one()
    back.weight.data.copy_(net.weight.data)
    other.load_state_dict(optimizer.state_dict())
    steps(back, other, 1)
    assert torch.equal(back.weight, expected)


def test_state_that_the_optimizer_brings_along_is_kept():
    net, plain = one()
    steps(net, plain, 3)
    trainer = Trainer(net, plain, "device", update_on_kvstore=True)
    assert trainer.state_dict()["state"][0]["step"] == 3
    steps(net, trainer, 1)
    other, alone = one()
    steps(other, alone, 4)
    assert torch.equal(net.weight, other.weight)


def test_a_later_trainer_of_the_same_optimizer_takes_its_place():
    net, optimizer = one()
    store = LocalStore()
    steps(net, Trainer(net, optimizer, store, update_on_kvstore=True), 1)
    saved = optimizer.state_dict()
    store.close()
    with pytest.raises(StateError, match="closed"):
        optimizer.state_dict()
    Trainer(net, optimizer, None)
    optimizer.load_state_dict(saved)
    assert optimizer.state_dict()["state"][0]["step"] == 1
