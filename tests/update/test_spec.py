import math

import pytest
import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore import OptimizerSpec


def weights(count: int) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(2, 2)) for _ in range(count)]


@pytest.mark.parametrize("name", ["sgd", "SGD", "Sgd"])
def test_name_in_any_case(name):
    spec = OptimizerSpec(name, {"lr": 0.1})
    assert spec.name == "SGD"
    assert spec.optimizer_class is torch.optim.SGD
    assert spec == OptimizerSpec("SGD", {"lr": 0.1})


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("sgd", {"lr": math.nan}),
        ("sgd", {"lr": math.inf}),
        ("sgd", {"lr": -0.1}),
        ("sgd", {"lr": "0.1"}),
        ("sgd", {"lr": None}),
        ("sgd", {"learning_rate": 0.1}),
        ("sgd", {"params": []}),
        ("sgd", {"momentum": -1.0}),
        ("sgd", {"nesterov": True}),
        ("adam", {"betas": (0.9, math.nan)}),
        ("adam", {"betas": (0.9, 1.5)}),
        ("adam", {"eps": object()}),
        ("adam", {"foreach": True, "fused": True}),
        ("nosuch", {}),
        ("Optimizer", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_what_cannot_work_is_refused_at_once(name, params):
    with pytest.raises(ConfigError):
        OptimizerSpec(name, params)


@pytest.mark.parametrize(
    "options",
    [
        {"lr_mult": {"a": -1.0}},
        {"lr_mult": {"a": math.nan}},
        {"wd_mult": {"a": "2"}},
        {"rescale_grad": math.nan},
        {"rescale_grad": True},
        {"groups": {"a": {"lr": -1.0}}},
        {"groups": {"a": {"colour": 1}}},
    ],
)
def test_bad_multipliers_and_groups(options):
    with pytest.raises(ConfigError):
        OptimizerSpec("sgd", {"lr": 0.1}, **options)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'nosuch'.*Adam.*SGD"):
        OptimizerSpec("nosuch")


def test_closures_and_recorded_updates_are_unsupported():
    with pytest.raises(UnsupportedError, match="closure"):
        OptimizerSpec("LBFGS")
    with pytest.raises(UnsupportedError, match="closure"):
        OptimizerSpec.from_optimizer(torch.optim.LBFGS(weights(1)))
    for name in ("differentiable", "capturable"):
        with pytest.raises(UnsupportedError, match=name):
            OptimizerSpec("adam", {name: True})


def test_a_thousand_equal_groups_are_tried_once(monkeypatch):
    built = []
    build = OptimizerSpec.build
    monkeypatch.setattr(
        OptimizerSpec, "build", lambda self, *rest: built.append(rest) or build(self, *rest)
    )
    groups = {key: {"lr": 0.1 + key % 2} for key in range(1000)}
    OptimizerSpec("adam", {"lr": 0.5}, groups=groups)
    assert len(built) == 3
    with pytest.raises(ConfigError, match="key 999"):
        OptimizerSpec("adam", groups=groups | {999: {"lr": -1.0}})


@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Rprop"])
@pytest.mark.parametrize("lr", [0.0, 0, -3.3e-18])
def test_rates_that_schedulers_end_at(name, lr):
    optimizer = OptimizerSpec(name, {"lr": lr}).build([torch.zeros(2)])
    assert optimizer.param_groups[0]["lr"] == lr


def test_no_weight_decay_to_multiply():
    with pytest.raises(ConfigError, match="wd_mult"):
        OptimizerSpec("rprop", wd_mult={"a": 0.0})


def test_arguments_hold_defaults_groups_and_multipliers():
    spec = OptimizerSpec(
        "adamw", {"lr": 0.5}, lr_mult={"a": 0.1}, wd_mult={"a": 3.0}, groups={"a": {"eps": 1e-3}}
    )
    plain, special = spec.arguments("b"), spec.arguments("a")
    assert plain["weight_decay"] == 0.01
    assert plain["betas"] == (0.9, 0.999)
    assert special["lr"] == pytest.approx(0.05)
    assert special["weight_decay"] == pytest.approx(0.03)
    assert (special["eps"], plain["eps"]) == (1e-3, 1e-8)


def test_the_callers_dictionaries_are_not_kept():
    params, mult = {"lr": 0.5}, {"a": 2.0}
    spec = OptimizerSpec("sgd", params, lr_mult=mult)
    params["lr"], mult["a"] = 9.0, 9.0
    assert spec.arguments("a")["lr"] == 1.0


class TestFromOptimizer:
    def test_numbers_are_taken_and_the_rest_is_left(self):
        optimizer = torch.optim.AdamW(weights(2), lr=torch.tensor(0.25), betas=(0.8, 0.9))
        torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
        spec = OptimizerSpec.from_optimizer(optimizer)
        assert spec.name == "AdamW"
        assert spec.params["lr"] == pytest.approx(float(optimizer.param_groups[0]["lr"]))
        assert type(spec.params["lr"]) is float
        assert "max_lr" not in spec.params
        assert spec.describes(optimizer)
        optimizer.param_groups[0]["lr"] = 3.0
        assert not spec.describes(optimizer)

    def test_groups_by_key(self):
        a, b, c = weights(3)
        optimizer = torch.optim.SGD(
            [{"params": [a, b]}, {"params": [c], "lr": 5.0, "momentum": 0.5}], lr=1.0
        )
        spec = OptimizerSpec.from_optimizer(optimizer, keys=["a", "b", "c"])
        assert [spec.arguments(key)["lr"] for key in "abc"] == [1.0, 1.0, 5.0]
        assert spec.arguments("c")["momentum"] == 0.5
        for keys in (None, ["a", "b"]):
            with pytest.raises(ConfigError, match="3 keys"):
                OptimizerSpec.from_optimizer(optimizer, keys=keys)

    def test_names_of_parameters_are_keys(self):
        named = list(zip("abc", weights(3), strict=True))
        optimizer = torch.optim.SGD(
            [{"params": named[:2]}, {"params": named[2:], "lr": 5.0}], lr=1.0
        )
        spec = OptimizerSpec.from_optimizer(optimizer)
        assert [spec.arguments(key)["lr"] for key in "abc"] == [1.0, 1.0, 5.0]
        assert spec.describes(optimizer)
        optimizer.param_groups[1]["lr"] = 6.0
        assert not spec.describes(optimizer)
        spec.check_covers("c")
        with pytest.raises(ConfigError, match="'d' is none of the optimizer's parameters"):
            spec.check_covers("d")

    def test_keys_that_two_parameters_have(self):
        groups = [{"params": weights(1)}, {"params": weights(1), "lr": 5.0}]
        optimizer = torch.optim.SGD(groups, lr=1.0)
        with pytest.raises(ConfigError, match="have the key 'a'"):
            OptimizerSpec.from_optimizer(optimizer, ["a", "a"])

    def test_groups_that_were_broken(self):
        optimizer = torch.optim.SGD(weights(1), lr=1.0)
        del optimizer.param_groups[0]["lr"]
        with pytest.raises(ConfigError, match="group 0 of the SGD lacks 'lr'"):
            OptimizerSpec.from_optimizer(optimizer)
        optimizer.param_groups.clear()
        with pytest.raises(ConfigError, match="no parameter groups"):
            OptimizerSpec.from_optimizer(optimizer)

    def test_equal_groups_need_no_keys(self):
        a, b = weights(2)
        optimizer = torch.optim.SGD([{"params": [a]}, {"params": [b]}], lr=1.0)
        assert OptimizerSpec.from_optimizer(optimizer).groups == {}

    def test_other_classes_say_what_to_do(self):
        class SGD(torch.optim.SGD):
            pass

        with pytest.raises(UnsupportedError, match="set_updater"):
            OptimizerSpec.from_optimizer(SGD(weights(1), lr=0.1))

    @pytest.mark.parametrize(
        "name",
        [
            name
            for name in dir(torch.optim)
            if isinstance(getattr(torch.optim, name), type)
            and issubclass(getattr(torch.optim, name), torch.optim.Optimizer)
            and name not in ("Optimizer", "LBFGS")
        ],
    )
    def test_every_class_of_torch_comes_back_equal(self, name):
        made = getattr(torch.optim, name)(weights(1), lr=0.125)
        again = OptimizerSpec.from_optimizer(made).build(weights(1))
        before, after = ({**g, "params": 0} for g in (made.param_groups[0], again.param_groups[0]))
        assert before == after
