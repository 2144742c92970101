import threading

import pytest
import torch
from tests.integration.jobs import run_threads
from tests.update import custom

from bireme.errors import ConfigError, JobError, StateError, UnsupportedError
from bireme.kvstore import OptimizerSpec


def alone(work, num_workers=1, **config):
    def inside(session):
        with session.store("dist_sync") as store:
            work(store)

    run_threads(num_workers, 2, inside, **config)


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


LION = f"{custom.__name__}:Lion"


def test_a_class_by_import_path_needs_leave():
    def refused(store):
        store.init("a", torch.zeros(4))
        for optimizer in (OptimizerSpec(LION), custom.Lion([torch.zeros(1)])):
            with pytest.raises(ConfigError, match=f"--allow-optimizer {custom.__name__}"):
                store.set_optimizer(optimizer)
        assert not store.runs_updates
        store.push("a", torch.ones(4))
        assert store.pull("a").tolist() == [2.0] * 4

    def allowed(store):
        store.init("a", torch.zeros(400))
        store.set_optimizer(custom.Lion([torch.zeros(1)], lr=0.5))
        store.push("a", torch.ones(400))
        assert store.pull("a").unique().tolist() == [-0.5]
        assert list(store.optimizer_states()["a"]) == ["exp_avg"]

    alone(refused, num_workers=2)
    for name in (LION, custom.__name__):
        alone(allowed, num_workers=2, slice_bytes=64, allowed_optimizers={name})


def test_values_of_a_class_that_looks_at_norms_are_not_cut():
    weight = torch.linspace(1, 9, 100)
    expected = weight.clone()

    def work(store):
        store.set_optimizer(OptimizerSpec(f"{custom.__name__}:Lars", {"lr": 0.5}))
        store.init("w", weight)
        for _ in range(3):
            store.push("w", torch.ones(100))
        torch.testing.assert_close(store.pull("w"), expected)

    optimizer = custom.Lars([expected], lr=0.5)
    for _ in range(3):
        expected.grad = torch.ones(100)
        optimizer.step()
    alone(work, slice_bytes=64, allowed_optimizers={custom.__name__})


def test_numbers_that_would_need_whole_values_are_refused_once_keys_are_cut():
    def work(store):
        lars = custom.Lars([torch.zeros(1)], lr=0.5, trust=0.0)
        store.set_optimizer(lars)
        store.init("w", torch.zeros(100))
        lars.param_groups[0]["trust"] = 0.1
        with pytest.raises(StateError, match="is cut over servers already"):
            store.push("w", torch.ones(100))
        lars.param_groups[0]["trust"] = 0.0
        store.push("w", torch.ones(100))
        assert store.pull("w")[0] == -0.5

    alone(work, slice_bytes=64, allowed_optimizers={custom.__name__})


def test_an_optimizer_that_cannot_be_set_is_refused_on_every_worker():
    def work(store):
        store.init("a", torch.zeros(4))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        with pytest.raises(ConfigError, match="lets its servers import"):
            store.set_optimizer(OptimizerSpec(LION))
        store.push("a", torch.ones(4))
        assert store.pull("a").tolist() == [-2.0] * 4

    alone(work, num_workers=2)


def named_groups(store, first="a", second="b"):
    params = [(first, torch.zeros(1)), (second, torch.zeros(1))]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.25}]
    return torch.optim.SGD(groups, lr=1.0, momentum=0.5)


def test_groups_of_named_parameters_are_live():
    def work(store):
        store.init(["a", "b"], [torch.zeros(1), torch.zeros(1)])
        optimizer = named_groups(store)
        store.set_optimizer(optimizer)
        both = [torch.ones(1), torch.ones(1)]
        store.push(["a", "b"], both)
        optimizer.param_groups[1]["lr"] = 0.5
        optimizer.param_groups[1]["momentum"] = 0.0
        store.push(["a", "b"], both)
        assert [each.item() for each in store.pull(["a", "b"])] == [-1 - 1.5, -0.25 - 0.5]
        optimizer.add_param_group({"params": [("c", torch.zeros(1))], "lr": 4.0, "momentum": 0.0})
        store.init("c", torch.zeros(1))
        store.push("c", torch.ones(1))
        assert store.pull("c").item() == -4.0
        store.init("d", torch.zeros(1))
        with pytest.raises(ConfigError, match="'d' is none of the optimizer's parameters"):
            store.push("d", torch.ones(1))

    alone(work)


def test_another_class_begins_afresh_and_the_same_keeps_its_state():
    def work(store):
        store.init("a", torch.zeros(1))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
        store.push("a", torch.ones(1))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.5, "momentum": 0.5}))
        assert store.optimizer_states()["a"]["momentum_buffer"].item() == 1.0 * store.num_workers
        store.barrier()
        store.set_optimizer(OptimizerSpec("adam"))
        assert store.optimizer_states() == {}
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
        assert store.optimizer_states() == {}
        assert store.pull("a").item() == -store.num_workers

    alone(work)
    alone(work, num_workers=2)


def test_a_rate_of_zero_moves_nothing_and_keeps_state():
    def work(store):
        rows = torch.ones(3, 2).to_sparse(1)
        optimizer = torch.optim.SparseAdam([torch.zeros(1)], lr=0.5)
        store.init("a", torch.zeros(3, 2))
        store.set_optimizer(optimizer)
        store.push("a", rows)
        before = store.pull("a")
        optimizer.param_groups[0]["lr"] = 0.0
        store.push("a", rows)
        assert torch.equal(store.pull("a"), before)
        assert store.optimizer_states()["a"]["step"] == 2

    alone(work)


def test_a_push_does_not_wait_for_another_threads_change():
    def work(store):
        sent, answered = threading.Event(), threading.Event()
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        store.init("a", torch.zeros(1))
        store.set_optimizer(optimizer)
        command = store._client.command

        def slow_command(*args, **more):
            sent.set()
            assert answered.wait(10)
            return command(*args, **more)

        store._client.command = slow_command
        change = threading.Thread(
            target=store.set_optimizer, args=(OptimizerSpec("sgd", {"lr": 0.5}),)
        )
        change.start()
        assert sent.wait(10)
        store.push("a", torch.ones(1))
        assert store.pull("a").item() == -1.0
        answered.set()
        change.join(10)
        store.push("a", torch.ones(1))
        assert store.pull("a").item() == -1.5

    alone(work)


def test_a_path_that_is_none_and_unforeseen_errors_reach_every_worker():
    def work(store):
        store.init("a", torch.zeros(1))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        for call in (store.save_optimizer_states, store.load_optimizer_states):
            with pytest.raises(ConfigError, match="a path is text"):
                call(None)
        with pytest.raises(JobError, match="ZeroDivisionError: by zero"):
            store._optimizer._rank_0_does(fail)
        store.push("a", torch.ones(1))
        assert store.pull("a").item() == -2.0

    def fail():
        raise ZeroDivisionError("by zero")

    alone(work, num_workers=2)
