import copy
import pickle

import pytest
import torch

from bireme.horovod.torch.states import fill, install, outline


def trained(kind, *, steps, seed, **options):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    groups = [
        {"params": list(model[0].parameters())},
        {"params": list(model[1].parameters()), "lr": 0.5 + seed},
    ]
    if kind is torch.optim.LBFGS:
        groups = list(model.parameters())
    optimizer = kind(groups, **options)
    for _ in range(steps):

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(4, 3)).pow(2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return model, optimizer


def carry(source, target):
    """What the ranks do, without ranks: an outline as bytes, tensors one by one."""
    plan, tensors = outline(source)
    plan = pickle.loads(pickle.dumps(plan))  # noqa: S301
    places = fill(plan, target)
    for place, tensor in zip(places, tensors, strict=True):
        assert place.shape == tensor.shape
        place.copy_(tensor)
    install(plan, places, target)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype is b.dtype
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.AdamW, {"lr": 0.1, "amsgrad": True}),
        (torch.optim.Adagrad, {"lr": 0.1}),
        (torch.optim.Rprop, {"lr": 0.1}),
        (torch.optim.Adam, {"lr": torch.tensor(0.1), "capturable": False, "foreach": False}),
        (torch.optim.LBFGS, {"lr": 0.1, "max_iter": 3}),
    ],
)
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("other_steps", [0, 3])
def test_any_state_takes_the_place_of_any_other(kind, options, steps, other_steps):
    model, source = trained(kind, steps=steps, seed=0, **options)
    other, target = trained(kind, steps=other_steps, seed=1, **copy.deepcopy(options))
    carry(source, target)
    assert same(source.state_dict(), target.state_dict())
    # And training goes on alike from there.
    other.load_state_dict(model.state_dict())
    for net, optimizer in ((model, source), (other, target)):
        if kind is not torch.optim.LBFGS:
            optimizer.zero_grad()
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    assert same(model.state_dict(), other.state_dict())


def test_options_stay_in_the_groups_that_schedulers_hold():
    _, source = trained(torch.optim.SGD, steps=0, seed=0, lr=0.1)
    _, target = trained(torch.optim.SGD, steps=0, seed=1, lr=0.9)
    held = target.param_groups[0]
    carry(source, target)
    assert held["lr"] == 0.1
    assert held is target.param_groups[0]
