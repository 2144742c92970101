"""Hyper-parameters that change during training: on servers as in one plain process.

Both workers have the gradient of one process, so that their mean is that gradient to the last bit.
"""

import threading

import pytest
import torch
from tests.integration.jobs import run_threads
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR

from bireme.kvstore import OptimizerSpec
from bireme.train.trainer import Trainer

STEPS = 8
SLICE_BYTES = 64


def step_gradients(number):
    made = torch.Generator().manual_seed(number)
    shapes = ((12, 5), (3,))
    return [torch.randn(shape, generator=made, dtype=torch.float64) for shape in shapes]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        big, small = step_gradients(1000)
        self.big, self.small = nn.Parameter(big), nn.Parameter(small)


SGD = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01})
ADAM = (torch.optim.AdamW, {"lr": 0.1, "betas": (0.8, 0.9)})


def lambdas(optimizer):
    return [lambda step, factor=factor: factor / (step + 1) for factor in (1.0, 3.0)][
        : len(optimizer.param_groups)
    ]


SCHEDULERS = {
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambdas(o)),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: schedulers.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [2, 5], 0.1),
    "ConstantLR": lambda o: schedulers.ConstantLR(o, 0.3, 4),
    "LinearLR": lambda o: schedulers.LinearLR(o, 0.3, 0.0, 6),
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o, 5, 2.0),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=STEPS + 1),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.01, 0.5, step_size_up=3),
    "SequentialLR": lambda o: schedulers.SequentialLR(
        o, [schedulers.ConstantLR(o, 0.1, 2), schedulers.ExponentialLR(o, 0.5)], [3]
    ),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler(
        [schedulers.StepLR(o, 2, 0.5), schedulers.ExponentialLR(o, 0.9)], optimizer=o
    ),
    "SWALR": lambda o: SWALR(o, swa_lr=0.02, anneal_epochs=4),
    "ReduceLROnPlateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0, factor=0.5),
}


def train(model, stepper, schedule=None, before=None):
    scheduler = None if schedule is None else schedule(stepper)
    for number in range(STEPS):
        if before is not None:
            before(number, stepper)
        for param, grad in zip(model.parameters(), step_gradients(number), strict=True):
            param.grad = grad if param.requires_grad else None
        stepper.step()
        if isinstance(scheduler, schedulers.ReduceLROnPlateau):
            scheduler.step(float(number % 3))
        elif scheduler is not None:
            scheduler.step()
    return [param.detach().clone() for param in model.parameters()]


def grouped(model, kind, options):
    """Two groups with numbers of their own."""
    groups = [{"params": [model.big]}, {"params": [model.small], "weight_decay": 0.5}]
    return kind(groups, **options)


def compare(make, schedule=None, before=None, kinds=("dist_sync",)):
    model = Net()
    expected = train(model, make(model), schedule, before)

    def work(session, kind):
        with session.store(kind) as store:
            model = Net()
            trainer = Trainer(model, make(model), store, update_on_kvstore=True)
            return train(model, trainer, schedule, before)

    for kind in kinds:
        count = 1 if kind == "dist_async" else 2
        for found in run_threads(
            count, 2, lambda session, kind=kind: work(session, kind), slice_bytes=SLICE_BYTES
        ):
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


def test_no_scheduler_of_torch_is_left_out():
    known = {
        name
        for name, each in vars(schedulers).items()
        if isinstance(each, type)
        and issubclass(each, schedulers.LRScheduler)
        and not name.startswith("_")
    }
    assert known - {"LRScheduler"} <= set(SCHEDULERS)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_take_effect_at_their_step(name):
    compare(lambda model: grouped(model, *SGD), SCHEDULERS[name])


@pytest.mark.parametrize("name", ["LinearLR", "OneCycleLR", "CyclicLR"])
def test_schedulers_that_turn_betas(name):
    compare(lambda model: grouped(model, *ADAM), SCHEDULERS[name])


def change(number, stepper):
    """Change something else at every step."""
    first, second = stepper.param_groups[:2]
    if number == 0:
        first["lr"] = 0.7
    elif number == 1:
        first["weight_decay"], second["lr"] = 0.2, 0.0
    elif number == 2:
        first["momentum"], second["lr"] = 0.5, torch.tensor(0.3, dtype=torch.float64)
    elif number == 3:
        second["nesterov"], second["dampening"] = True, 0
    elif number == 4:
        first["maximize"] = True
    elif number == 5:
        first["lr"], second["weight_decay"] = 0, 0.0


@pytest.mark.parametrize("kinds", [("dist_sync",), ("dist_async",)])
def test_every_number_is_live(kinds):
    compare(lambda model: grouped(model, *SGD), before=change, kinds=kinds)


def test_betas_and_eps_are_live():
    def turn(number, stepper):
        group = stepper.param_groups[number % 2]
        group["betas"], group["eps"] = (0.5 + number / 20, 0.9), 1e-3 * (number + 1)

    compare(lambda model: grouped(model, *ADAM), before=turn)


def test_parameters_that_are_frozen_or_added_on_the_way():
    def freeze(number, stepper):
        for group in stepper.param_groups:
            for param in group["params"]:
                param.requires_grad_(number % 3 != 1 or param.dim() > 1)

    compare(lambda model: grouped(model, *SGD), before=freeze)

    def add(number, stepper):
        if number == 3:
            stepper.add_param_group({"params": [stepper.later], "lr": 0.01, "momentum": 0.1})
            stepper.add_param_group({"params": []})

    def make(model):
        optimizer = torch.optim.SGD([{"params": [model.big]}, {"params": []}], **SGD[1])
        optimizer.later = model.small
        return optimizer

    model = Net()
    expected = train(model, make(model), before=add)

    def work(session):
        with session.store("dist_sync") as store:
            model = Net()
            trainer = Trainer(model, make(model), store)
            trainer.later = model.small
            return train(model, trainer, before=add)

    for found in run_threads(2, 2, work, slice_bytes=SLICE_BYTES):
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("first", [0, 1, None], ids=["leader", "follower", "in turn"])
def test_workers_apart_in_time_change_at_the_same_round(first):
    """One worker has changed its numbers and pushed before the other begins the round."""
    rates = [0.1 * (number + 1) for number in range(STEPS)]
    decays = [0.01 * (number % 3) for number in range(STEPS)]
    gone = [threading.Event() for _ in range(STEPS)]

    def optimizer_of(value):
        return torch.optim.SGD([value], lr=0.5, momentum=0.9)

    def turn(optimizer, number):
        optimizer.param_groups[0].update(lr=rates[number], weight_decay=decays[number])

    value = torch.linspace(-1, 1, 60, dtype=torch.float64)
    expected, plain = [], value.clone()
    alone = optimizer_of(plain)
    for number in range(STEPS):
        turn(alone, number)
        plain.grad = step_gradients(number)[0].flatten() * 2
        alone.step()
        expected.append(plain.clone())

    def work(session):
        with session.store("dist_sync") as store:
            store.init("w", value)
            optimizer = optimizer_of(torch.zeros(1))
            store.set_optimizer(optimizer)
            found = []
            for number in range(STEPS):
                leads = number % 2 if first is None else first
                if store.rank != leads:
                    assert gone[number].wait(20)
                turn(optimizer, number)
                store.push("w", step_gradients(number)[0].flatten())
                gone[number].set()
                found.append(store.pull("w"))
            return found

    for found in run_threads(2, 2, work, slice_bytes=SLICE_BYTES):
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)


def test_the_leader_may_be_a_round_ahead():
    """Rank 0 pushes, changes its rate and pushes again before rank 1 begins the first round."""
    about_to_change = threading.Event()

    def work(session):
        with session.store("dist_sync") as store:
            store.init("w", torch.zeros(40))
            optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
            store.set_optimizer(optimizer)
            if store.rank == 1:
                assert about_to_change.wait(20)
            store.push("w", torch.ones(40))
            optimizer.param_groups[0]["lr"] = 0.25
            if store.rank == 0:
                about_to_change.set()
            store.push("w", torch.ones(40))
            return store.pull("w")

    for found in run_threads(2, 2, work, slice_bytes=SLICE_BYTES):
        assert found.unique().tolist() == [-2.5]


def test_multipliers_follow_the_rate():
    spec = OptimizerSpec(
        "sgd", {"lr": 1.0, "weight_decay": 0.1}, lr_mult={"small": 0.0}, wd_mult={"big": 0.0}
    )

    def work(session):
        with session.store("dist_sync") as store:
            model = Net()
            trainer = Trainer(model, spec, store)
            trainer.set_learning_rate(0.5)
            for param in model.parameters():
                param.grad = torch.ones_like(param)
            trainer.step()
            return [param.detach() for param in model.parameters()]

    for big, small in run_threads(2, 2, work, slice_bytes=SLICE_BYTES):
        torch.testing.assert_close(big, Net().big.detach() - 0.5)
        assert torch.equal(small, Net().small.detach())
