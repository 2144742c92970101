import pytest
import torch
from tests.integration.jobs import run_threads
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bireme.data import BalancedBatchSampler
from bireme.errors import ConfigError, StateError
from bireme.kvstore import LocalStore
from bireme.train.balancing import Balancing, connect
from bireme.train.module import Module
from bireme.train.trainer import Trainer


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    def __call__(self):
        return self.now


class Listener(BalancedBatchSampler):
    """Notes the times that it is told."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.told = []

    def word(self, seconds):
        self.told.append(seconds)
        return super().word(seconds)


def timed(clock, num_parts=2):
    sampler = Listener(40, 8, num_parts, 0, work_load_list=[1] * num_parts)
    sampler.connect()
    # Passes begin when the clock of the test says so.
    sampler.begun_s = 0.0
    return sampler, Balancing(sampler, clock=clock)


def exchange(balancing, parts=2):
    """Let others say the same."""
    word = balancing.word()
    fields = 4
    others = [0.0] * fields + word[:fields] + [2 * each for each in word[2 * fields :]]
    total = [a + b for a, b in zip(word[: 2 * fields], others, strict=False)] + others[8:]
    balancing.hear(total)


def exchange_and_fail(balancing):
    exchange(balancing)
    raise StateError("failed later")


def test_only_time_between_steps_counts():
    clock = Clock()
    sampler, balancing = timed(clock)
    for own_s, waited_s in ((3.0, 50.0), (2.0, 0.0), (1.0, 9.0)):
        clock.now += own_s
        with balancing.step():
            exchange(balancing)
            clock.now += waited_s
    assert sampler.told == [3.0, 2.0, 1.0]


def test_time_ends_where_the_step_begins_to_meet_others():
    clock = Clock()
    sampler, balancing = timed(clock)
    clock.now += 3.0
    balancing.stop()
    clock.now += 7.0  # looking for overflows together with all others
    balancing.stop()
    with balancing.step():
        exchange(balancing)
    assert sampler.told == [3.0]


def test_waits_for_others_between_steps_can_be_excluded():
    clock = Clock()
    sampler, balancing = timed(clock)
    for _ in range(2):
        clock.now += 2.0
        with balancing.waiting():
            clock.now += 1.0
        with balancing.step():
            exchange(balancing)
    assert sampler.told == [2.0, 2.0]


def test_what_a_script_does_before_a_pass_does_not_count():
    clock = Clock()
    sampler, balancing = timed(clock)
    clock.now += 60.0  # evaluates
    sampler.begun_s = clock.now
    clock.now += 2.0
    with balancing.step():
        exchange(balancing)
    assert sampler.told == [2.0]


def test_one_step_is_told_once_and_counted_once():
    sampler, balancing = timed(Clock())
    assert balancing.waits
    exchange(balancing)
    assert not balancing.waits
    with balancing.step():
        pass
    assert balancing.waits
    with pytest.raises(StateError), balancing.step():
        raise StateError("refused before anything was exchanged")
    with balancing.step():
        exchange(balancing)
    assert sampler.word(0.0)[1] == 2.0
    with pytest.raises(StateError), balancing.step():
        exchange_and_fail(balancing)
    assert balancing.waits
    assert sampler.word(0.0)[1] == 3.0


@pytest.mark.parametrize("part", [(2, 0), (1, 0)])
def test_the_sampler_must_be_this_workers(part):
    sampler = BalancedBatchSampler(40, 8, *part)
    if part == (1, 0):
        connect(sampler, None, ())
        connect(sampler, LocalStore(), ())
        return
    with pytest.raises(ConfigError, match="part 0 of 2, but this is worker 0 of 1"):
        connect(sampler, None, ())


def test_something_else_than_a_sampler():
    trainer = Trainer(nn.Linear(1, 1), "sgd")
    with pytest.raises(ConfigError, match=r"balances a bireme\.data\.BalancedBatchSampler"):
        trainer.balance([1, 2])


def test_workers_with_different_settings_hear_of_it():
    def work(session):
        with session.store("dist_sync") as store:
            sampler = BalancedBatchSampler(40 + store.rank, 8, 2, store.rank)
            with pytest.raises(ConfigError, match=r'samplers differ; here it has .*"n": 4'):
                connect(sampler, store, ())

    run_threads(2, 1, work)


def test_asynchronous_workers_share_no_batches():
    def work(session):
        with session.store("dist_async") as store:
            with pytest.raises(ConfigError, match="do not wait for each other"):
                connect(BalancedBatchSampler(40, 8, 2, store.rank), store, ())

    run_threads(2, 1, work)


def test_a_step_without_numbers_is_weighed_by_the_portion():
    def work(session):
        with session.store("dist_sync") as store:
            net = nn.Linear(1, 1, bias=False)
            nn.init.zeros_(net.weight)
            trainer = Trainer(net, "sgd", store, optimizer_params={"lr": 1.0})
            sampler = BalancedBatchSampler(
                8, 4, 2, store.rank, work_load_list=[3, 1], shuffle=False
            )
            trainer.balance(sampler)
            trainer.balance(sampler)
            for indices in sampler:
                trainer.zero_grad()
                net(torch.tensor(indices).view(-1, 1).float()).mean().backward()
                trainer.step()
            return net.weight.item()

    # The means of 0 to 3 and of 4 to 7.
    assert run_threads(2, 1, work) == [-7.0, -7.0]


def test_merging_before_the_step_is_the_same_step():
    def work(session):
        with session.store("dist_sync") as store:
            net = nn.Linear(1, 1, bias=False)
            nn.init.zeros_(net.weight)
            params = {"lr": 1.0}
            trainer = Trainer(net, "sgd", store, optimizer_params=params, update_on_kvstore=False)
            sampler = BalancedBatchSampler(
                8, 4, 2, store.rank, work_load_list=[3, 1], shuffle=False
            )
            trainer.balance(sampler)
            for indices in sampler:
                trainer.zero_grad()
                net(torch.tensor(indices).view(-1, 1).float()).mean().backward()
                trainer.allreduce_grads()
                trainer.step()
            return net.weight.item()

    assert run_threads(2, 1, work) == [-7.0, -7.0]


@pytest.mark.parametrize("contexts", [["cpu(0)"], ["cpu(0)", "cpu(1)"]])
def test_fit_shares_the_batches_of_an_ordinary_loader(contexts):
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=draws, dtype=torch.float64)
    y = x @ torch.ones(3, 1, dtype=torch.float64)
    data = TensorDataset(x, y)

    def fitted(store, num_workers):
        net = nn.Linear(3, 1).double()
        for param in net.parameters():
            nn.init.zeros_(param)
        module = Module(net, nn.functional.mse_loss, contexts)
        ends = []
        module.fit(
            DataLoader(data, 8, shuffle=False),
            num_epoch=2,
            kvstore=store,
            optimizer_params={"lr": 0.1},
            eval_metric=None,
            work_load_list=[3, 1][:num_workers],
            epoch_end_callback=lambda end: ends.append(end.num_samples),
        )
        return ends, [param.detach().clone() for param in net.parameters()]

    def work(session):
        with session.store("dist_sync") as store:
            return fitted(store, 2)

    (first, one), (second, two) = run_threads(2, 1, work)
    assert (first, second) == ([37, 37], [13, 13])
    alone = fitted("device", 1)
    assert alone[0] == [50, 50]
    for here, there, exact in zip(one, two, alone[1], strict=True):
        assert torch.equal(here, there)
        torch.testing.assert_close(here, exact, rtol=1e-9, atol=1e-12)
