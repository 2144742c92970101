import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.kvstore import OptimizerSpec


def alone(work, **config):
    def inside(session):
        with session.store("dist_sync") as store:
            work(store)

    run_threads(1, 2, inside, **config)


def test_optimizers_of_whole_values():
    def work(store):
        store.init("cut", torch.zeros(10, 10))
        with pytest.raises(StateError, match="call set_optimizer before init"):
            store.set_optimizer(OptimizerSpec("muon"))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        store.push("cut", torch.ones(10, 10))
        assert store.pull("cut")[0, 0] == -1

    alone(work, slice_bytes=64)


def test_gradients_are_refused_at_the_call_by_the_users_names():
    def work(store):
        store.init(["a", "b"], [torch.ones(4), torch.ones(4, dtype=torch.int32)])
        store.set_optimizer(OptimizerSpec("adam"))
        with pytest.raises(ConfigError, match="'b' holds"):
            store.push(["a", "b"], [torch.ones(4), torch.ones(4, dtype=torch.int32)])
        with pytest.raises(UnsupportedError, match="key 'a'"):
            store.push("a", torch.ones(4).to_sparse(1))
        assert store.optimizer_states() == {}

    alone(work)


def test_a_change_that_the_servers_refuse_is_tried_again():
    def work(store):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        store.init("a", torch.zeros(2))
        store.set_optimizer(optimizer)
        store.push("a", torch.ones(2))
        optimizer.param_groups[0]["lr"] = float("inf")
        for _ in range(2):
            with pytest.raises(ConfigError, match="finite"):
                store.push("a", torch.ones(2))
        optimizer.param_groups[0]["lr"] = 0.5
        store.push("a", torch.ones(2))
        assert store.pull("a").tolist() == [-1.5, -1.5]

    alone(work)


def test_keys_added_later_have_their_own_numbers():
    def work(store):
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}, lr_mult={"late": 3.0}))
        for key, expected in (("early", -1), ("late", -3)):
            store.init(key, torch.zeros(1))
            store.push(key, torch.ones(1))
            assert store.pull(key).item() == expected

    alone(work)
