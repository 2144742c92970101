"""Gives, takes, writes and reads optimizer states. The trainer calls it.

The file is what ``torch.save(optimizer.state_dict(), path)`` writes, so a plain torch script can
load it, and it is read with ``weights_only=True``, so it cannot run code.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bireme.errors import ConfigError, DataError
from bireme.train.local_update import LocalUpdate
from bireme.train.optimizers import params_of
from bireme.update import atomic

__all__ = ("check_states", "load_states", "save_states", "states_of", "take_over")

_LOCAL = "local"


def states_of(optimizer: torch.optim.Optimizer, local: LocalUpdate | None) -> dict[str, Any]:
    """Return an optimizer's ``state_dict()``, and beside it where its local steps stand, if any."""
    states: dict[str, Any] = optimizer.state_dict()
    if local is not None:
        states[_LOCAL] = local.state()
    return states


def take_over(
    states: dict[str, Any], optimizer: torch.optim.Optimizer, local: LocalUpdate | None
) -> None:
    """Load what :func:`states_of` returned, or the ``state_dict()`` of a plain torch optimizer.

    Raises:
        ConfigError: It belongs to other parameters or to another optimizer. Nothing is changed.
    """
    check_states(states, optimizer)
    steps = states.get(_LOCAL)
    if local is not None and steps is not None:
        local.check(steps)
    before = optimizer.state_dict()
    try:
        optimizer.load_state_dict(states)
    except BaseException:
        optimizer.load_state_dict(before)
        raise
    if local is not None and steps is not None:
        local.load(steps)


def save_states(path: str | os.PathLike[str], states: dict[str, Any]) -> None:
    """Write an optimizer's ``state_dict()`` to ``path``, all or nothing.

    Raises:
        FileError: It cannot be written.
    """
    atomic.write(path, lambda file: torch.save(states, file))


def load_states(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`save_states`, or torch itself, wrote. Tensors arrive on the CPU.

    Raises:
        ConfigError: The file does not exist or cannot be read.
        DataError: It is truncated, corrupt, or holds something else.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            states = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"cannot read optimizer states from {name!r}: {error}") from error
    except Exception as error:  # whatever torch's reader stumbles over, the file is at fault
        raise DataError(f"{name!r} holds no optimizer states: {error}") from error
    if not isinstance(states, dict) or not {"state", "param_groups"} <= states.keys():
        raise DataError(f"{name!r} holds no optimizer states; it was not written by save_states")
    return states


def check_states(states: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Refuse states that cannot be those of ``optimizer``.

    Args:
        states: A ``state_dict()``.
        optimizer: The optimizer that would load it.

    Raises:
        ConfigError: Parts are missing, groups have other sizes, a hyper-parameter is missing
            (as in those of another class of optimizer), or a tensor has another shape than its
            parameter.
    """
    if not _has_form(states):
        raise ConfigError("optimizer states need 'state' and 'param_groups'; use state_dict()")
    sizes = [len(group["params"]) for group in states["param_groups"]]
    own = [len(group["params"]) for group in optimizer.param_groups]
    if sizes != own:
        raise ConfigError(
            f"the states are of parameter groups of sizes {sizes}, the optimizer's are {own}"
        )
    _check_numbers(states["param_groups"], optimizer)
    # LBFGS keeps one flat vector for all parameters; others keep a tensor like each parameter,
    # a factor of it, or a number.
    if isinstance(optimizer, torch.optim.LBFGS):
        return
    numbers = [number for group in states["param_groups"] for number in group["params"]]
    for number, param in zip(numbers, params_of(optimizer), strict=True):
        for name, value in states["state"].get(number, {}).items():
            if isinstance(value, torch.Tensor) and not _fits(value, param):
                raise ConfigError(
                    f"state {name!r} has shape {tuple(value.shape)}, but its parameter has "
                    f"{tuple(param.shape)}; the states are of another model"
                )


def _has_form(states: object) -> bool:
    if not isinstance(states, Mapping) or not {"state", "param_groups"} <= states.keys():
        return False
    state, groups = states["state"], states["param_groups"]
    return (
        isinstance(state, Mapping)
        and all(isinstance(each, Mapping) for each in state.values())
        and isinstance(groups, list | tuple)
        and all(isinstance(each, Mapping) and "params" in each for each in groups)
    )


def _check_numbers(groups: Sequence[Mapping[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    # Switches come and go between versions of torch; numbers have always been saved.
    needed = [
        name
        for name, value in optimizer.defaults.items()
        if isinstance(value, int | float | tuple) and not isinstance(value, bool)
    ]
    for group in groups:
        missing = [name for name in needed if name not in group]
        if missing:
            raise ConfigError(
                f"the states lack {', '.join(missing)}, so they are not those of a "
                f"{type(optimizer).__name__}"
            )


def _fits(value: torch.Tensor, param: torch.Tensor) -> bool:
    if value.dim() != param.dim():
        return True
    return all(have in (1, want) for have, want in zip(value.shape, param.shape, strict=True))
