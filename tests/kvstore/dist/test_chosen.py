"""Optimizers that differ between workers."""

import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import ConfigError
from bireme.kvstore import OptimizerSpec


def every(num_workers, work, kind="dist_sync", **config):
    def inside(session):
        with session.store(kind) as store:
            return work(store)

    return run_threads(num_workers, 2, inside, **config)


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_different_classes_are_refused_on_every_worker(kind):
    def work(store):
        store.init("a", torch.zeros(4))
        mine = OptimizerSpec("adam") if store.rank == 1 else OptimizerSpec("sgd", {"lr": 0.5})
        with pytest.raises(ConfigError, match="the workers set different optimizers") as raised:
            store.set_optimizer(mine)
        assert not store.runs_updates
        # Nothing has changed, and a right choice is taken.
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.5}))
        store.push("a", torch.ones(4))
        store.wait_all()
        store.barrier()
        return str(raised.value), store.pull("a").tolist()

    first, *others = every(3, work, kind)
    assert others == [first, first]
    assert "W[0], W[2]: torch.optim.SGD(lr=0.5); W[1]: torch.optim.Adam(lr=0.001)" in first[0]
    assert first[1] == [-1.5] * 4


@pytest.mark.parametrize(
    "other",
    [
        OptimizerSpec("sgd", {"lr": 0.25}),
        OptimizerSpec("sgd", {"lr": 0.5}, lr_mult={"a": 2.0}),
        OptimizerSpec("sgd", {"lr": 0.5}, rescale_grad=0.5),
        OptimizerSpec("sgd", {"lr": 0.5, "momentum": 0.5}),
    ],
)
def test_different_numbers_are_refused_on_every_worker(other):
    def work(store):
        mine = other if store.rank else OptimizerSpec("sgd", {"lr": 0.5})
        with pytest.raises(ConfigError, match=r"W\[0\]: torch.optim.SGD\(lr=0.5\); W\[1\]: "):
            store.set_optimizer(mine)

    every(2, work)


def test_numbers_that_are_written_differently_are_the_same():
    def work(store):
        specs = OptimizerSpec("sgd", {"lr": 0.5}), OptimizerSpec("SGD", {"lr": 0.5, "momentum": 0})
        store.set_optimizer(torch.optim.SGD([torch.zeros(1)], lr=0.5) if store.rank else specs[0])

    every(2, work)


def test_who_does_not_come_is_named():
    def work(store):
        store.init("a", torch.zeros(4))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.5}))
        if store.rank == 0:
            with pytest.raises(ConfigError, match=r"sets torch.optim.Adam, .*W\[1\] missing"):
                store.set_optimizer(OptimizerSpec("adam"))
        else:
            store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.25}))
        store.barrier()

    every(2, work, pull_timeout_s=2.0, push_timeout_s=2.0)
