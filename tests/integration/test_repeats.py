"""Steps that repeat exactly, until one of them does not: each sum is right whichever way it went.

From the third step on that exchanges the same keys, workers bundle them, servers take them for one
and both leave out what does not change. Here something changes, for all or for one of them.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.integration.jobs import run_threads

from bireme.errors import BiremeError, ConfigError
from bireme.kvstore import OptimizerSpec

SIZES = (5, 1, 40, 3)
KEYS = [f"k{i}" for i in range(len(SIZES))]
WARM = 4
"""After so many equal steps everything takes the short way."""


class Stepper:
    """Makes the steps of one worker, and says what each must bring.

    Args:
        store: The worker's.
        keys: What is exchanged; may be changed between steps.
    """

    def __init__(self, store, keys=KEYS):
        self.store = store
        self.sizes = dict(zip(KEYS, SIZES, strict=True))
        self.num_steps = 0
        self.present = list(range(store.num_workers))
        """The ranks that still push."""
        self.choose(keys)

    def choose(self, keys):
        self.keys = list(keys)
        self.values = [torch.zeros(self.sizes[key]) for key in keys]
        self.outs = [torch.zeros(self.sizes[key]) for key in keys]

    def step(self, way="list"):
        for value in self.values:
            value.fill_(16.0 * self.num_steps + self.store.rank)
        WAYS[way](self)
        expected = sum(16.0 * self.num_steps + rank for rank in self.present)
        for out in self.outs:
            assert out.tolist() == [expected] * len(out), (way, self.num_steps)
        self.num_steps += 1

    def steps(self, count):
        for _ in range(count):
            self.step()


def singly(it):
    for key, value, out in zip(it.keys, it.values, it.outs, strict=True):
        it.store.pushpull(key, value, out)


def singly_at_once(it):
    begun = [
        it.store.pushpull_async(key, value, out)
        for key, value, out in zip(it.keys, it.values, it.outs, strict=True)
    ]
    for pending in reversed(begun):
        pending.wait()


def push_then_pull(it):
    it.store.push(it.keys, it.values)
    for value in it.values:
        value.fill_(-1.0)  # it has been copied
    it.store.pull(it.keys, it.outs)


def other_tensors(it):
    it.values = [value.clone() for value in it.values]
    it.outs = [torch.zeros_like(out) for out in it.outs]
    it.store.pushpull(it.keys, it.values, it.outs)


def strided(it):
    spread = [torch.zeros(2 * len(value)) for value in it.values]
    for each, value in zip(spread, it.values, strict=True):
        each[::2] = value
    it.store.pushpull(it.keys, [each[::2] for each in spread], it.outs)


def two_devices(it):
    it.store.pushpull(it.keys, [[value, torch.zeros_like(value)] for value in it.values], it.outs)


def in_place(it):
    for value, out in zip(it.values, it.outs, strict=True):
        out.copy_(value)
    it.store.pushpull(it.keys, it.outs)


WAYS = {
    "list": lambda it: it.store.pushpull(it.keys, it.values, it.outs),
    "backwards": lambda it: it.store.pushpull(it.keys[::-1], it.values[::-1], it.outs[::-1]),
    "singly": singly,
    "singly at once": singly_at_once,
    "push": push_then_pull,
    "other tensors": other_tensors,
    "strided": strided,
    "two devices": two_devices,
    "in place": in_place,
    "halves": lambda it: [
        it.store.pushpull(it.keys[part], it.values[part], it.outs[part])
        for part in (slice(0, 2), slice(2, None))
        if it.keys[part]
    ],
    "priority": lambda it: it.store.pushpull(it.keys, it.values, it.outs, priority=3),
}


def in_job(work, num_workers, num_servers):
    """Run ``work(stepper)`` on every worker of a job whose keys are there."""

    def inside(session):
        with session.store("dist_sync") as store:
            store.init(KEYS, [torch.zeros(size) for size in SIZES])
            work(Stepper(store))

    run_threads(num_workers, num_servers, inside)


STRAYS = st.lists(
    st.tuples(st.integers(0, WARM), st.tuples(*[st.sampled_from(sorted(WAYS))] * 3)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=6, deadline=None)
@given(STRAYS, st.integers(1, 2))
@example([(WARM, ("list", "singly", "push"))] * 3, 1)
@example([(WARM, ("list", "list", way)) for way in sorted(WAYS)], 2)
def test_workers_leave_the_routine_each_at_a_step_of_its_own(strays, num_servers):
    def work(stepper):
        for repeats, ways in strays:
            stepper.steps(repeats)
            stepper.step(ways[stepper.store.rank])
        stepper.steps(WARM)

    in_job(work, 3, num_servers)


REFUSED = {
    "a longer value": lambda it: it.store.pushpull("k0", torch.zeros(6), it.outs[0]),
    "another type": lambda it: it.store.pushpull("k0", torch.zeros(5).double(), it.outs[0]),
    "another shape": lambda it: it.store.pushpull("k0", torch.zeros(5, 1), it.outs[0]),
    "a shorter out": lambda it: it.store.pushpull(it.keys, it.values, [torch.zeros(1)] * 4),
    "an out of another type": lambda it: it.store.pull("k2", torch.zeros(40).int()),
    "too few values": lambda it: it.store.pushpull(it.keys, it.values[:3], it.outs),
    "a key too many": lambda it: it.store.pushpull([*it.keys, "k9"], [*it.values, it.values[0]]),
    "a key of another type": lambda it: it.store.pushpull([*it.keys[:3], 3], it.values, it.outs),
    "a key twice, unequal": lambda it: it.store.push(["k0", "k0"], it.values[:2]),
    "no tensor": lambda it: it.store.push(it.keys, [None] * 4),
    "no priority": lambda it: it.store.pushpull(it.keys, it.values, it.outs, priority="high"),
}


@pytest.mark.parametrize("num_servers", [1, 2])
def test_what_is_refused_in_between_changes_nothing(num_servers):
    def work(stepper):
        stepper.steps(WARM)
        for what, call in REFUSED.items():
            if stepper.store.rank == 1:
                with pytest.raises(BiremeError) as caught:
                    call(stepper)
                assert isinstance(caught.value, ConfigError), what
            stepper.steps(2)

    in_job(work, 2, num_servers)


@pytest.mark.parametrize("num_servers", [1, 2])
def test_keys_come_and_go(num_servers):
    def work(stepper):
        stepper.choose(KEYS[:2])
        stepper.steps(WARM)
        for keys in (KEYS[:3], KEYS, KEYS[1:3], KEYS[1:2], KEYS[::-1], KEYS):
            stepper.choose(keys)
            stepper.steps(WARM)
        stepper.sizes["late"] = 7
        stepper.store.init("late", torch.zeros(7))
        stepper.choose([*KEYS, "late"])
        stepper.steps(WARM)
        stepper.choose(["late"])
        stepper.steps(WARM)

    in_job(work, 2, num_servers)


@pytest.mark.parametrize("num_servers", [1, 2])
@pytest.mark.parametrize("keys", [KEYS, KEYS[:1]])
def test_workers_that_are_done_are_not_waited_for(keys, num_servers):
    def work(stepper):
        stepper.choose(keys)
        for last in (2, 1, 0):
            stepper.steps(WARM + last)
            if stepper.store.rank == last:
                return
            stepper.present.remove(last)

    in_job(work, 3, num_servers)


def trained_alone(rates, momentum, gradient):
    """Return what one process has after each step, with a rate for each of them."""
    weight = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=momentum)
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = gradient.clone()
        optimizer.step()
        yield weight.detach().clone()


@pytest.mark.parametrize("num_servers", [1, 2])
@pytest.mark.parametrize("keys", [("w",), ("w", "v")])
def test_a_rate_holds_from_the_step_at_which_it_changes(keys, num_servers):
    rates = [0.5] * WARM + [0.25] + [0.125] * WARM + [1.0, 0.5, 1.0] + [0.0] + [0.75] * WARM
    gradient = torch.arange(4.0, dtype=torch.float64)
    expected = list(trained_alone(rates, 0.9, 3 * gradient))

    def work(session):
        with session.store("dist_sync") as store:
            zero = torch.zeros(4, dtype=torch.float64)
            store.init(list(keys), [zero] * len(keys))
            optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0, momentum=0.9)
            store.set_optimizer(optimizer)
            values = [(store.rank + 1) * gradient for _ in keys]
            outs = [zero.clone() for _ in keys]
            for rate, weight in zip(rates, expected, strict=True):
                optimizer.param_groups[0]["lr"] = rate
                store.pushpull(list(keys), values, outs)
                for out in outs:
                    torch.testing.assert_close(out, weight, rtol=0, atol=1e-12)

    run_threads(2, num_servers, work)


@pytest.mark.parametrize("num_servers", [1, 2])
def test_an_optimizer_may_come_change_and_go(num_servers):
    def work(stepper):
        store = stepper.store
        stepper.steps(WARM)
        store.overwrite(KEYS, [torch.zeros(size) for size in SIZES])
        ones, total = [torch.ones(size) for size in SIZES], 0.0
        for spec, change in (
            (OptimizerSpec("sgd", {"lr": 1.0}), 2.0),
            (OptimizerSpec("sgd", {"lr": 0.5}), 1.0),
            (OptimizerSpec("adagrad", {"lr": 0.0}), 0.0),
            (OptimizerSpec("sgd", {"lr": 0.25}), 0.5),
        ):
            store.set_optimizer(spec)
            for _ in range(WARM):
                store.pushpull(KEYS, ones, stepper.outs)
                total -= change
                assert [out.unique().tolist() for out in stepper.outs] == [[total]] * len(KEYS)
        store.set_updater(None)
        stepper.steps(WARM)

    in_job(work, 2, num_servers)


@pytest.mark.parametrize("num_servers", [1, 2])
def test_one_worker_compresses_for_a_while(num_servers):
    def work(stepper):
        stepper.steps(WARM)
        if stepper.store.rank:
            stepper.store.set_gradient_compression({"type": "fp16"})
        stepper.steps(WARM)
        if not stepper.store.rank:
            stepper.store.set_gradient_compression({"type": "fp16"})
        stepper.steps(WARM)
        stepper.store.set_gradient_compression(None)
        stepper.steps(WARM)

    in_job(work, 2, num_servers)
