"""Every optimizer of ``torch.optim``: on servers, on workers and in one plain process."""

import pytest
import torch
from tests.integration.jobs import run_threads
from tests.seeding import seeded
from torch import nn

from bireme.errors import UnsupportedError
from bireme.kvstore import OptimizerSpec
from bireme.train.trainer import Trainer

STEPS = 10
SLICE_BYTES = 256

CASES = {
    "SGD": [
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"lr": 0.1, "momentum": 0.8, "dampening": 0.1, "maximize": True},
        {"lr": 0.1},
    ],
    "Adam": [
        {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1, "betas": (0.8, 0.95)},
        {"maximize": True, "eps": 1e-6, "decoupled_weight_decay": True, "weight_decay": 0.1},
    ],
    "AdamW": [{"lr": 0.01, "amsgrad": True}, {"maximize": True, "weight_decay": 0.3}],
    "Adamax": [{"weight_decay": 0.1, "betas": (0.8, 0.99)}, {"maximize": True}],
    "NAdam": [
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.01},
        {"maximize": True},
    ],
    "RAdam": [
        {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.5, 0.6)},
        {"maximize": True},
    ],
    "RMSprop": [
        {"centered": True, "momentum": 0.9, "weight_decay": 0.1, "alpha": 0.9},
        {"maximize": True},
    ],
    "Rprop": [{"etas": (0.4, 1.3), "step_sizes": (1e-5, 1.0)}, {"maximize": True}],
    "Adagrad": [
        {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "lr": 0.1},
        {"maximize": True},
    ],
    "Adadelta": [{"rho": 0.8, "weight_decay": 0.1}, {"maximize": True}],
    "ASGD": [{"t0": 3, "lambd": 0.01, "weight_decay": 0.1}, {"maximize": True}],
    "Adafactor": [
        {"lr": 0.05, "weight_decay": 0.1, "d": 1.5, "beta2_decay": -0.5, "eps": (None, 1e-2)},
        {"maximize": True},
    ],
    "Muon": [
        {"lr": 0.05, "momentum": 0.8, "nesterov": False, "ns_steps": 4},
        {"weight_decay": 0.2, "adjust_lr_fn": "match_rms_adamw"},
    ],
    "SparseAdam": [{"lr": 0.05, "betas": (0.8, 0.9)}, {"maximize": True}],
}
EVERY = [(name, params) for name, cases in CASES.items() for params in cases]


class Dense(nn.Module):
    """One value that is cut over servers, one small; matrices only where asked."""

    def __init__(self, bias):
        super().__init__()
        self.big = nn.Linear(6, 40, bias=bias)
        self.small = nn.Linear(40, 2, bias=bias)

    def forward(self, x):
        return self.small(torch.tanh(self.big(x)))


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.big = nn.Embedding(60, 4, sparse=True)
        self.small = nn.Embedding(3, 2, sparse=True)

    def forward(self, x):
        rows = (x[:, 0].abs() * 100).long()
        return self.big(rows % 60).sum(1, keepdim=True) + self.small(rows % 3)


def net(name):
    with seeded(7):
        model = Sparse() if name == "SparseAdam" else Dense(bias=name != "Muon")
    return model.double()


def batch(number):
    made = torch.Generator().manual_seed(number)
    return torch.randn(8, 6, generator=made, dtype=torch.float64)


def make(name, model, params):
    return getattr(torch.optim, name)(model.parameters(), **params)


def train(model, stepper, part=slice(None)):
    for number in range(STEPS):
        stepper.zero_grad()
        output = model(batch(number)[part])
        (output.square().mean() + output.mean()).backward()
        stepper.step()
    return [param.detach().clone() for param in model.parameters()]


def alone(name, params):
    model = net(name)
    return train(model, make(name, model, params))


def together(name, params, on_servers, kind="dist_sync", num_workers=2):
    def work(session):
        model = net(name)
        with session.store(kind) as store:
            trainer = Trainer(model, make(name, model, params), store, update_on_kvstore=on_servers)
            assert store.runs_updates is on_servers
            size = 8 // num_workers
            return train(model, trainer, slice(size * store.rank, size * (store.rank + 1)))

    return run_threads(num_workers, 2, work, slice_bytes=SLICE_BYTES)


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_no_optimizer_of_torch_is_left_out():
    known = {
        name
        for name, each in vars(torch.optim).items()
        if isinstance(each, type) and issubclass(each, torch.optim.Optimizer)
    }
    assert known - {"Optimizer", "LBFGS"} == set(CASES)


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_on_servers_on_workers_and_alone_are_the_same(name, params):
    expected = alone(name, params)
    assert any(
        not torch.equal(*each) for each in zip(expected, net(name).parameters(), strict=True)
    )
    for on_servers in (True, False):
        for found in together(name, params, on_servers):
            same(found, expected)


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_one_asynchronous_worker_is_a_plain_process(name, params):
    (found,) = together(name, params, True, "dist_async", num_workers=1)
    same(found, alone(name, params))


def test_lbfgs_is_refused_with_a_reason():
    with pytest.raises(UnsupportedError, match="closure"):
        OptimizerSpec("LBFGS")
