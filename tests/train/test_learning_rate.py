import pytest
import torch

from bireme.errors import ConfigError
from bireme.train.learning_rate import (
    check_learning_rates,
    get_learning_rate,
    set_learning_rate,
)


def make(*groups):
    return torch.optim.SGD([{"params": [torch.zeros(1)], **group} for group in groups], lr=1.0)


def test_multipliers_apply_to_what_is_set():
    optimizer = make({"lr_mult": 0.5}, {}, {"lr_mult": 0})
    set_learning_rate(optimizer, 2)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 2.0, 0.0]
    assert get_learning_rate(optimizer) == 2.0


@pytest.mark.parametrize("factor", [-1, float("nan"), float("inf"), "2", None, True])
def test_a_bad_multiplier_changes_nothing(factor):
    optimizer = make({}, {"lr_mult": factor})
    with pytest.raises(ConfigError, match="lr_mult must be a finite number"):
        set_learning_rate(optimizer, 5.0)
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_a_rate_hidden_by_its_multiplier():
    with pytest.raises(ConfigError, match="hides"):
        get_learning_rate(make({"lr_mult": 0}))


def test_optimizers_without_a_rate():
    class Plain(torch.optim.Optimizer):
        def step(self, closure=None):
            return None

    optimizer = Plain([torch.zeros(1)], {})
    with pytest.raises(ConfigError, match="Plain has no lr"):
        get_learning_rate(optimizer)
    with pytest.raises(ConfigError, match="Plain has no lr"):
        set_learning_rate(optimizer, 1.0)


@pytest.mark.parametrize("lr", [float("nan"), float("inf"), -0.1])
def test_a_ruinous_rate_is_refused_before_anything_changes(lr):
    weight = torch.ones(2, requires_grad=True)
    other = torch.ones(2, requires_grad=True)
    sgd = torch.optim.SGD([{"params": [weight]}, {"params": [other]}], lr=0.1)
    check_learning_rates(sgd)
    sgd.param_groups[1]["lr"] = lr
    with pytest.raises(ConfigError, match="group 1"):
        check_learning_rates(sgd)


def test_rounding_below_zero_is_no_mistake():
    optimizer = make({}, {})
    optimizer.param_groups[1]["lr"] = -3.3e-18
    check_learning_rates(optimizer)
    optimizer.param_groups[1]["lr"] = -1e-9
    with pytest.raises(ConfigError, match="group 1 is -1e-09"):
        check_learning_rates(optimizer)
