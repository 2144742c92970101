"""A Module whose optimizer runs on servers: groups, a scheduler, a checkpoint in the middle."""

import pytest
import torch
from tests.integration.jobs import run_threads
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR, StepLR

from bireme.kvstore import OptimizerSpec
from bireme.train.module import Module

SPEC = OptimizerSpec(
    "adamw",
    {"lr": 0.05, "weight_decay": 0.1},
    lr_mult={"2.bias": 3.0},
    wd_mult={"0.weight": 0.0},
    groups={"0.bias": {"betas": (0.5, 0.6)}},
)
SCHEDULES = {
    "StepLR": lambda trainer: StepLR(trainer, 2, 0.5),
    "OneCycleLR": lambda trainer: OneCycleLR(trainer, 0.1, total_steps=8),
}


def make_net():
    net = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 3))
    draws = torch.Generator().manual_seed(5)
    for param in net.parameters():
        param.data = torch.randn(param.shape, generator=draws, dtype=torch.float64) / 3
    return net


def batches(part=slice(None)):
    draws = torch.Generator().manual_seed(6)
    return [
        (torch.randn(8, 5, generator=draws, dtype=torch.float64)[part], label[part])
        for label in torch.randint(3, (3, 8), generator=draws)
    ]


def fit(module, part, num_epoch, store, schedule):
    module.fit(
        batches(part),
        num_epoch=num_epoch,
        kvstore=store,
        optimizer=SPEC,
        lr_scheduler=SCHEDULES[schedule],
    )
    return [param.detach().clone() for param in module.net.parameters()]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_ends_where_one_process_ends_also_after_a_checkpoint(schedule, tmp_path):
    loss = nn.CrossEntropyLoss()
    expected = fit(Module(make_net(), loss=loss), slice(None), 5, "local", schedule)

    def first(session):
        with session.store("dist_sync") as store:
            module = Module(make_net(), loss=loss)
            fit(module, slice(4 * store.rank, 4 * store.rank + 4), 2, store, schedule)
            module.save_checkpoint(tmp_path / f"rank{store.rank}", 2)

    def second(session):
        with session.store("dist_sync") as store:
            module = Module.load(tmp_path / f"rank{store.rank}", 2, make_net(), loss=loss)
            return fit(module, slice(4 * store.rank, 4 * store.rank + 4), 5, store, schedule)

    run_threads(2, 3, first, slice_bytes=128)
    for found in run_threads(2, 2, second, slice_bytes=256):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
