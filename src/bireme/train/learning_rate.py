"""Reads and sets one learning rate over an optimizer's parameter groups. The trainer calls it."""

import math

import torch

from bireme.errors import ConfigError
from bireme.update.numbers import LEAST_RATE

__all__ = ("check_learning_rates", "get_learning_rate", "set_learning_rate")


def check_learning_rates(optimizer: torch.optim.Optimizer) -> None:
    """Refuse a learning rate that would ruin every parameter in one step.

    Raises:
        ConfigError: A group's ``lr`` is NaN, infinite or negative by more than rounding.

    Example:
        >>> check_learning_rates(torch.optim.SGD([torch.zeros(1)], lr=0.1))
    """
    for number, group in enumerate(optimizer.param_groups):
        lr = float(group.get("lr", 0.0))
        if not LEAST_RATE < lr < math.inf:
            raise ConfigError(
                f"the lr of parameter group {number} is {lr}; it must be finite and >= 0 "
                "(look at what the lr scheduler computes)"
            )


def get_learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """Return the learning rate of the first group, before its ``lr_mult``.

    Raises:
        ConfigError: The optimizer has no ``lr``, or the first group's ``lr_mult`` is 0.
    """
    group = optimizer.param_groups[0]
    if "lr" not in group:
        raise ConfigError(f"{type(optimizer).__name__} has no lr")
    factor = _factor(group)
    if factor == 0:
        raise ConfigError("the first group's lr_mult is 0, which hides the learning rate")
    return float(group["lr"]) / factor


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group ``lr`` times its ``lr_mult``, which is 1 when a group has none.

    Args:
        optimizer: Changed in place.
        lr: Finite, >= 0.

    Raises:
        ConfigError: ``lr`` or an ``lr_mult`` is out of range, or the optimizer has no ``lr``.

    Example:
        >>> head, body = torch.zeros(1), torch.zeros(1)
        >>> sgd = torch.optim.SGD([{"params": [head]}, {"params": [body], "lr_mult": 0.5}], 1.0)
        >>> set_learning_rate(sgd, 0.1)
        >>> [group["lr"] for group in sgd.param_groups]
        [0.1, 0.05]
    """
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not math.isfinite(lr) or lr < 0:
        raise ConfigError(f"lr must be a finite number >= 0, got {lr!r}")
    factors = [_factor(group) for group in optimizer.param_groups]
    if any("lr" not in group for group in optimizer.param_groups):
        raise ConfigError(f"{type(optimizer).__name__} has no lr")
    for group, factor in zip(optimizer.param_groups, factors, strict=True):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr * factor)
        else:
            group["lr"] = lr * factor


def _factor(group: dict[str, object]) -> float:
    factor = group.get("lr_mult", 1.0)
    if (
        isinstance(factor, bool)
        or not isinstance(factor, int | float)
        or not 0 <= factor < math.inf
    ):
        raise ConfigError(f"lr_mult must be a finite number >= 0, got {factor!r}")
    return float(factor)
