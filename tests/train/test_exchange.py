"""The exchange, alone and between workers that are threads of this process."""

import copy
import threading

import pytest
import torch
from torch import nn

from bireme.errors import ConfigError, StateError
from bireme.kvstore import DeviceStore, KVStoreBase, LocalStore
from bireme.train.exchange import Exchange
from bireme.train.lineup import Lineup
from bireme.train.trainer import Trainer


def make(count=2):
    net = nn.Linear(1, 1)
    return Lineup([copy.deepcopy(net) for _ in range(count)])


def test_keys_say_whose_they_are_and_which_parameter():
    store = LocalStore()
    first, second = Exchange(make(), store), Exchange(make(), store)
    assert first.key(0) == "trainer0/weight"
    assert second.key(1) == "trainer1/bias"


def test_keys_start_with_replica_0s_weights_once():
    store, lineup = LocalStore(), make()
    exchange = Exchange(lineup, store)
    assert exchange.keys([1, 0]) == ["trainer0/bias", "trainer0/weight"]
    assert exchange.keys([0]) == ["trainer0/weight"]
    assert torch.equal(store.pull("trainer0/weight"), lineup.params[0][0])


@pytest.mark.parametrize("updates", [0.5, 1.0, 2.0])
def test_only_a_store_that_keeps_sums_is_taken(updates):
    Exchange(make(), DeviceStore()).expect_sums()
    compressing = DeviceStore()
    compressing.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    Exchange(make(), compressing).expect_sums()
    busy = DeviceStore()
    busy.set_optimizer(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=updates))
    with pytest.raises(ConfigError, match="runs an optimizer"):
        Exchange(make(), busy).expect_sums()


def test_closed_stores_say_so():
    store = LocalStore()
    store.close()
    with pytest.raises(StateError, match="closed"):
        Exchange(make(), store)


def test_a_push_that_fails_leaves_gradients_as_they_were():
    lineup = make()
    exchange = Exchange(lineup, LocalStore())
    for value, params in zip([3.0, 5.0], lineup.params, strict=True):
        params[0].grad = torch.full((1, 1), value)
    exchange.store.close()
    with pytest.raises(StateError):
        exchange.merge([0, 1], [0.25, 0.75])
    assert [params[0].grad.item() for params in lineup.params] == [3.0, 5.0]


class Job:
    """What the stores of one job share."""

    def __init__(self, num_workers):
        self.meeting = threading.Barrier(num_workers, timeout=30)
        self.sent = [None] * num_workers


class JobStore(KVStoreBase):
    """Sums over threads; a worker that pushes other keys than its peers is an error."""

    type = "jobstore"
    rank = 0

    def __init__(self, job, rank):
        self.job = job
        self.rank = rank

    @property
    def num_workers(self):
        return len(self.job.sent)

    def _swap(self, keys, values):
        self.job.sent[self.rank] = (keys, [value.clone() for value in values])
        self.job.meeting.wait()
        everything = list(self.job.sent)
        self.job.meeting.wait()
        assert all(each[0] == keys for each in everything), everything
        return [each[1] for each in everything]

    def broadcast(self, key, value, out, priority=0):
        keys, values, outs = (key, value, out) if isinstance(key, list) else ([key], [value], [out])
        for root, targets in zip(self._swap(keys, values)[0], outs, strict=True):
            for target in targets if isinstance(targets, list) else [targets]:
                target.copy_(root)

    def pushpull(self, key, value, out=None, priority=0):
        assert out is None
        keys, values = (key, value) if isinstance(key, list) else ([key], [value])
        values = [each if isinstance(each, list) else [each] for each in values]
        sums = self._swap(keys, [sum(each) for each in values])
        for targets, parts in zip(values, zip(*sums, strict=True), strict=True):
            for target in targets:
                target.copy_(sum(parts))


def run_job(num_workers, work):
    """Call ``work(store)`` in one thread for each worker; return the results."""
    job, results, errors = Job(num_workers), [None] * num_workers, []

    def call(rank):
        try:
            results[rank] = work(JobStore(job, rank))
        except BaseException as error:
            errors.append(error)
            job.meeting.abort()

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(num_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return results


def start(store, replicas=1):
    nets = [
        nn.ModuleDict({"a": nn.Linear(1, 1, bias=False), "b": nn.Linear(1, 1, bias=False)})
        for _ in range(replicas)
    ]
    for net in nets:
        for layer in net.values():
            nn.init.constant_(layer.weight, float(store.rank))
    optimizer = torch.optim.SGD(nets[0].parameters(), lr=1.0)
    return nets, Trainer(nets, optimizer, store)


def read(nets):
    return [[layer.weight.item() for layer in net.values()] for net in nets]


def test_workers_start_with_rank_0s_weights_and_average():
    def work(store):
        nets, trainer = start(store, replicas=2)
        at_first = read(nets)
        for net in nets:
            net["a"](torch.full((1, 1), 1.0 + store.rank)).sum().backward()
        trainer.step()
        return at_first, read(nets)

    for at_first, after in run_job(2, work):
        assert at_first == [[0.0, 0.0]] * 2
        # Nobody used the other layer.
        assert after == [[-1.5, 0.0]] * 2


def test_counts_are_weighed_over_all_workers_and_one_may_have_none():
    def work(store):
        nets, trainer = start(store)
        counts = [3, 0, 1][store.rank]
        if counts:
            nets[0]["ab"[store.rank // 2]](torch.full((1, 1), 4.0)).sum().backward()
        trainer.step(num_samples=counts)
        return read(nets)

    assert run_job(3, work) == [[[-3.0, -1.0]]] * 3


def test_no_samples_on_any_worker_is_an_error_on_all():
    def work(store):
        _, trainer = start(store)
        with pytest.raises(ConfigError, match="empty batch"):
            trainer.step(num_samples=0)

    run_job(2, work)


def test_an_overflow_on_one_worker_skips_the_step_on_all():
    def work(store):
        nets, trainer = start(store)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for value in ([1.0, float("inf")][store.rank], 2.0):
            trainer.zero_grad()
            scaler.scale(nets[0]["a"](torch.full((1, 1), value)).sum()).backward()
            scaler.step(trainer)
            scaler.update()
        return read(nets), scaler.get_scale()

    assert run_job(2, work) == [([[-2.0, 0.0]], 2.0)] * 2


def test_counts_and_gradients_are_told_in_one_message():
    def work(store):
        nets, trainer = start(store)
        told = []
        swap = store._swap

        def watched(keys, values):
            told.append(keys)
            return swap(keys, values)

        store._swap = watched
        for _ in range(2):
            # Each worker uses one of the layers.
            nets[0]["ab"[store.rank]](torch.full((1, 1), 2.0)).sum().backward()
            trainer.step()
            trainer.zero_grad()
        return read(nets), [key for keys in told for key in keys if "/samples" in key], len(told)

    for weights, agreements, number in run_job(2, work):
        assert weights == [[-2.0, -2.0]]
        assert agreements == ["trainer0//samples and gradients"] * 3
        # The first agreement introduces its key; each step is one and an exchange of gradients.
        assert number == 1 + 2 * 2


def test_a_closure_computes_gradients_after_the_counts_were_told():
    def work(store):
        nets, trainer = start(store)

        def closure():
            trainer.zero_grad()
            loss = nets[0]["ab"[store.rank]](torch.full((1, 1), 2.0)).sum()
            loss.backward()
            return loss

        trainer.step(closure)
        return read(nets)

    assert run_job(2, work) == [[[-1.0, -1.0]]] * 2
