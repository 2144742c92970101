import pytest
import torch
from torch import nn

from bireme.errors import ConfigError, UnsupportedError
from bireme.train.learning_rate import set_learning_rate
from bireme.train.optimizers import make_optimizer, params_of, share_hooks
from bireme.update.spec import OptimizerSpec


def test_a_name_in_any_case_takes_all_parameters():
    net = nn.Linear(2, 1)
    net.bias.requires_grad_(False)
    optimizer = make_optimizer(net, "AdamW", {"lr": 0.5, "betas": [0.5, 0.9]})
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.param_groups[0]["params"] == [net.weight, net.bias]
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.9)
    assert make_optimizer(net, "sgd", None).param_groups[0]["lr"] == 1e-3


def test_an_instance_is_taken_as_it_is():
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters())
    assert make_optimizer(net, optimizer, None) is optimizer


def test_a_spec_gives_named_parameters_groups_of_their_own():
    net = nn.Linear(2, 1)
    spec = OptimizerSpec(
        "sgd",
        {"lr": 1.0, "weight_decay": 0.1},
        wd_mult={"bias": 0.0},
        groups={"bias": {"momentum": 0.5}},
    )
    weight, bias = make_optimizer(net, spec, None).param_groups
    assert (weight["params"], weight["weight_decay"], weight["momentum"]) == ([net.weight], 0.1, 0)
    assert (bias["params"], bias["weight_decay"], bias["momentum"]) == ([net.bias], 0.0, 0.5)


def test_a_spec_that_names_every_parameter():
    net = nn.Linear(2, 1)
    spec = OptimizerSpec("sgd", lr_mult={"bias": 2.0, "weight": 3.0})
    assert len(make_optimizer(net, spec, None).param_groups) == 2


@pytest.mark.parametrize(
    ("optimizer", "params", "error", "message"),
    [
        ("sgdd", None, ConfigError, "no optimizer 'sgdd'"),
        ("sgd", {"wd": 1, "weight_decay": 1}, ConfigError, "'weight_decay' twice"),
        ("sgd", {"momentum": -1}, ConfigError, "momentum"),
        ("muon", None, ConfigError, "Muon"),
        ("LBFGS", None, UnsupportedError, "as an instance"),
        (None, None, ConfigError, "got NoneType"),
        (torch.optim.SGD, None, ConfigError, "got type"),
        (OptimizerSpec("sgd"), {"lr": 1}, ConfigError, "not with an OptimizerSpec"),
        (OptimizerSpec("sgd", rescale_grad=2.0), None, UnsupportedError, "averages"),
        (OptimizerSpec("sgd", lr_mult={3: 1.0}), None, ConfigError, "3, which is no parameter"),
    ],
)
def test_bad_optimizers(optimizer, params, error, message):
    with pytest.raises(error, match=message):
        make_optimizer(nn.Linear(2, 1), optimizer, params)


def test_multipliers_stay_with_their_groups():
    spec = OptimizerSpec("sgd", {"lr": 0.5}, lr_mult={"bias": 0.1})
    optimizer = make_optimizer(nn.Linear(2, 1), spec, None)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.05]
    set_learning_rate(optimizer, 2.0)
    assert [group["lr"] for group in optimizer.param_groups] == [2.0, 0.2]


def test_parameters_come_in_the_order_of_their_groups():
    first, second, third = (nn.Parameter(torch.ones(1)) for _ in range(3))
    optimizer = torch.optim.SGD([{"params": [second]}, {"params": [first, third]}], lr=0.1)
    assert [id(param) for param in params_of(optimizer)] == [id(second), id(first), id(third)]


def test_shared_hooks_are_those_of_both():
    inner, face = (torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2))
    share_hooks(inner, face)
    calls = []
    face.register_step_pre_hook(lambda *_: calls.append("face"))
    inner.register_state_dict_post_hook(lambda *_: calls.append("inner"))
    inner.step()
    face.state_dict()
    assert calls == ["face", "inner"]
