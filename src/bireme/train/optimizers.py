"""Makes the torch optimizer that a trainer wraps, from whatever the caller named."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from bireme.errors import ConfigError, UnsupportedError
from bireme.types.keys import Key
from bireme.update.spec import OptimizerSpec, Plain

__all__ = ("checked_group", "make_optimizer", "params_of", "share_hooks")

_OTHER_NAMES = {"learning_rate": "lr", "wd": "weight_decay"}


def make_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | OptimizerSpec | str,
    params: Mapping[str, Plain] | None,
) -> torch.optim.Optimizer:
    """Return an optimizer over all parameters of ``model``, or the given one.

    Args:
        model: The first replica.
        optimizer: A torch optimizer, a spec whose keys are parameter names, or the name of a
            class of ``torch.optim`` in any case.
        params: Arguments for a name, such as ``{"lr": 0.1}``. ``learning_rate`` and ``wd`` are
            understood too.

    Raises:
        ConfigError: There is no such optimizer or argument, or nothing to train.
        UnsupportedError: A spec has a ``rescale_grad``, or the name is that of LBFGS.

    Example:
        >>> make_optimizer(nn.Linear(2, 1), "sgd", {"learning_rate": 0.5}).param_groups[0]["lr"]
        0.5
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        if params is not None:
            raise ConfigError(
                "optimizer_params go with an optimizer's name; set them when you make the "
                f"{type(optimizer).__name__} instance"
            )
        return optimizer
    if isinstance(optimizer, str):
        if optimizer.lower() == "lbfgs":
            raise UnsupportedError(
                "LBFGS has to be given as an instance, torch.optim.LBFGS(model.parameters()), and "
                "every step needs a closure"
            )
        optimizer = OptimizerSpec(optimizer, _renamed(params or {}))
    elif not isinstance(optimizer, OptimizerSpec):
        raise ConfigError(
            f"optimizer must be a torch.optim instance, a name or an OptimizerSpec, got "
            f"{type(optimizer).__name__}"
        )
    elif params is not None:
        raise ConfigError("optimizer_params go with an optimizer's name, not with an OptimizerSpec")
    if optimizer.rescale_grad != 1.0:
        raise UnsupportedError(
            f"rescale_grad={optimizer.rescale_grad} has no place in a trainer, which averages "
            "gradients; scale the loss or the learning rate"
        )
    return _from_spec(model, optimizer)


def _renamed(params: Mapping[str, Plain]) -> dict[str, Plain]:
    renamed: dict[str, Plain] = {}
    for name, value in params.items():
        new = _OTHER_NAMES.get(name, name)
        if new in renamed:
            raise ConfigError(f"optimizer_params give {new!r} twice, once under another name")
        renamed[new] = value
    return renamed


def _from_spec(model: nn.Module, spec: OptimizerSpec) -> torch.optim.Optimizer:
    named = dict(model.named_parameters())
    special = dict.fromkeys([*spec.groups, *spec.lr_mult, *spec.wd_mult])
    unknown = [key for key in special if key not in named]
    if unknown:
        raise ConfigError(
            f"the optimizer's spec names {unknown[0]!r}, which is no parameter of the model; it "
            f"has {', '.join(named)}"
        )
    groups: list[dict[str, object]] = [
        {"params": [named[str(key)]], **spec.arguments(key), **_multiplier(spec, key)}
        for key in special
    ]
    common = [param for name, param in named.items() if name not in special]
    if common:
        groups.insert(0, {"params": common, **spec.arguments(None)})
    try:
        return spec.optimizer_class(groups, **spec.arguments(None))  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{spec.title}: {error}") from error


def _multiplier(spec: OptimizerSpec, key: Key) -> dict[str, float]:
    # By which set_learning_rate keeps the group's rate in proportion to the others.
    return {"lr_mult": spec.lr_mult[key]} if key in spec.lr_mult else {}


def checked_group(group: object) -> dict[str, Any]:
    """Return a parameter group with its parameters in a list.

    Raises:
        ConfigError: It is no group.
    """
    if not isinstance(group, dict) or "params" not in group:
        raise ConfigError(f"a parameter group must be a dict with 'params', got {group!r:.60}")
    params = group["params"]
    if isinstance(params, torch.Tensor):
        params = [params]
    if isinstance(params, set) or not isinstance(params, Iterable):
        raise ConfigError(f"'params' must be a tensor or a list of tensors, got {params!r:.60}")
    return {**group, "params": list(params)}


def params_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of all groups, in order."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def share_hooks(optimizer: torch.optim.Optimizer, face: torch.optim.Optimizer) -> None:
    """Let hooks that are registered with ``face`` be those of ``optimizer``, and the other way."""
    face._optimizer_step_pre_hooks = optimizer._optimizer_step_pre_hooks
    face._optimizer_step_post_hooks = optimizer._optimizer_step_post_hooks
    face._optimizer_state_dict_pre_hooks = optimizer._optimizer_state_dict_pre_hooks
    face._optimizer_state_dict_post_hooks = optimizer._optimizer_state_dict_post_hooks
    face._optimizer_load_state_dict_pre_hooks = optimizer._optimizer_load_state_dict_pre_hooks
    face._optimizer_load_state_dict_post_hooks = optimizer._optimizer_load_state_dict_post_hooks
