"""Which optimizers need whole values: the table for torch's agrees with what trying shows."""

import pytest
import torch
from tests.update import custom

from bireme.update import OptimizerSpec, needs_whole_values
from bireme.update.wholeness import WHOLE_IN_TORCH, rehearse

CLASSES = sorted(
    name
    for name, each in vars(torch.optim).items()
    if isinstance(each, type)
    and issubclass(each, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS")
)
VARIANTS = {
    "SGD": [{"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"maximize": True}],
    "Adam": [{"amsgrad": True, "weight_decay": 0.1}],
    "AdamW": [{"amsgrad": True, "maximize": True}],
    "NAdam": [{"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{"betas": (0.1, 0.2)}],
    "RMSprop": [{"centered": True, "momentum": 0.9}],
    "Adagrad": [{"lr_decay": 0.1, "initial_accumulator_value": 0.5}],
    "ASGD": [{"t0": 1.0, "lambd": 0.1}],
    "Muon": [{"adjust_lr_fn": "match_rms_adamw"}],
    "Adafactor": [{"d": 2.0}],
}


@pytest.mark.parametrize("name", CLASSES)
def test_the_table_is_what_trying_shows(name):
    for params in [{}, {"lr": 0.0}, *VARIANTS.get(name, [])]:
        assert rehearse(OptimizerSpec(name, params)) is (name in WHOLE_IN_TORCH), params


@pytest.mark.parametrize(
    ("name", "params", "whole"),
    [
        ("Lion", {}, False),
        ("Lars", {}, True),
        ("Lars", {"trust": 0.0}, False),
        ("Lars", {"lr": 0.0}, True),
        ("Lamb", {}, True),
        ("Clipped", {"limit": 1.0}, True),
        ("Noisy", {}, True),
        ("CountsElements", {}, True),
        ("Refusing", {}, True),
    ],
)
def test_classes_by_import_path(name, params, whole):
    assert needs_whole_values(OptimizerSpec(f"{custom.__name__}:{name}", params)) is whole


def test_one_key_that_needs_it_is_enough():
    path = f"{custom.__name__}:Lars"
    assert needs_whole_values(OptimizerSpec(path, {"trust": 0.0}, groups={"w": {"trust": 1e-3}}))


def test_trying_leaves_the_random_numbers_alone():
    state = torch.random.get_rng_state()
    needs_whole_values(OptimizerSpec(f"{custom.__name__}:Noisy", {"lr": 0.123}))
    assert torch.equal(torch.random.get_rng_state(), state)
