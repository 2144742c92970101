"""Several workers in threads; with one worker the conformance battery says the rest."""

import os
import threading

import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import ConfigError, FileError, StateError
from bireme.kvstore import OptimizerSpec


def test_workers_that_come_in_any_order_get_the_same_bits():
    values = [torch.randn(300, generator=torch.Generator().manual_seed(rank)) for rank in range(4)]
    expected = (values[0] + values[1]) + (values[2] + values[3])

    def work(session):
        with session.store("dist_sync") as store:
            store.init("x", torch.zeros(300))
            for number in range(5):
                threading.Event().wait(0.002 * ((store.rank + number) % 4))
                store.push("x", values[store.rank])
                assert torch.equal(store.pull("x"), expected)

    run_threads(4, 3, work, slice_bytes=64)


def test_results_never_reach_values_that_are_still_to_be_sent():
    def work(session):
        with session.store("dist_sync") as store:
            store.init([0, 1], [torch.zeros(1000)] * 2)
            memory = torch.arange(1001.0) * (store.rank + 1)
            first = 3 * torch.arange(1000.0)
            store.pushpull(0, memory[:-1], memory[1:])
            assert torch.equal(memory[1:], first)
            one, two = torch.ones(1000), torch.full((1000,), 2.0)
            store.pushpull([0, 1], [one, two], [two, one])
            assert (one[0].item(), two[0].item()) == (4, 2)

    run_threads(2, 2, work, slice_bytes=64)


def test_saved_states_are_one_file_and_errors_reach_everyone(tmp_path):
    def work(session):
        with session.store("dist_sync") as store:
            store.init("x", torch.zeros(100))
            with pytest.raises(StateError, match="set_optimizer"):
                store.save_optimizer_states(str(tmp_path / "none"))
            store.set_optimizer(OptimizerSpec("adam"))
            store.push("x", torch.ones(100))
            store.save_optimizer_states(str(tmp_path / "states"))
            with pytest.raises(FileError, match="No such file"):
                store.save_optimizer_states(str(tmp_path / "no" / "folder"))
            with pytest.raises(ConfigError, match="'y'"):
                store.set_optimizer_states({"y": {}})
            assert store.optimizer_states()["x"]["step"].item() == 1

    run_threads(3, 2, work, slice_bytes=64)
    assert [path.name for path in tmp_path.iterdir()] == ["states"]


def test_states_are_saved_to_a_folder_whatever_its_name(tmp_path):
    folder = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"), "")
    absent = os.path.join(tmp_path, os.fsdecode(b"\xe9"), "absent")

    def work(session):
        with session.store("dist_sync") as store:
            store.init("x", torch.zeros(100))
            store.set_optimizer(OptimizerSpec("adam"))
            store.push("x", torch.ones(100))
            store.save_optimizer_states(folder)
            with pytest.raises(FileError, match="No such file"):
                store.save_optimizer_states(absent)
            store.push("x", torch.ones(100))
            store.load_optimizer_states(folder)
            assert store.optimizer_states()["x"]["step"].item() == 1

    run_threads(2, 2, work, slice_bytes=64)


def test_one_worker_alone_may_look_at_the_state():
    def work(session):
        with session.store("dist_sync") as store:
            store.init("x", torch.zeros(100))
            store.set_optimizer(OptimizerSpec("sgd", {"momentum": 0.5}))
            store.push("x", torch.ones(100))
            if store.rank == 1:
                momentum = store.optimizer_states()["x"]["momentum_buffer"]
                assert torch.equal(momentum, torch.full((100,), 2.0))
            store.push("x", torch.ones(100))
            store.wait_all()

    run_threads(2, 2, work, slice_bytes=64)


def test_calls_begun_together_end_in_any_order_with_the_same_sums():
    def work(session):
        with session.store("dist_sync") as store:
            keys = [f"k{number}" for number in range(6)]
            store.init(keys, [torch.zeros(100)] * 6)
            values = [torch.full((100,), float(number + store.rank)) for number in range(6)]
            outs = [torch.empty(100) for _ in keys]
            begun = [
                store.pushpull_async(key, value, out, priority=-number)
                for number, (key, value, out) in enumerate(zip(keys, values, outs, strict=True))
            ]
            order = reversed(begun) if store.rank else begun
            for each in order:
                each.wait()
                assert each.done
            for number, out in enumerate(outs):
                assert torch.equal(out, torch.full((100,), 2.0 * number + 1))
            store.pushpull_async(keys[0], values[0], priority=-1)
            store.wait_all()

    run_threads(2, 2, work, slice_bytes=64)


def test_a_priority_that_is_no_number_is_refused_at_once():
    def work(session):
        with session.store("dist_sync") as store:
            store.init(0, torch.zeros(2))
            for call in (store.push, store.pushpull, store.pull):
                with pytest.raises(ConfigError, match="priority"):
                    call(0, torch.ones(2), priority="high")
            store.push(0, torch.ones(2), priority=10**30)
            assert store.pull(0).tolist() == [1, 1]

    run_threads(1, 1, work)
