"""An optimizer's state as an outline without tensors, and back. Pure but for the optimizer.

Called by `broadcast_optimizer_state`: the root's outline travels as an object, tensors follow.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ("Outline", "Slot", "fill", "install", "outline")


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor goes."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device_type: str
    owner: int | None
    """Number of the parameter whose state it is; None: of an option."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A state with slots in the place of tensors."""

    shapes: list[list[tuple[int, ...]]]
    """Of the parameters, group by group."""
    options: list[dict[str, Any]]
    """Of each group, such as the learning rate."""
    state: dict[Any, Any]
    """By the parameter's number."""
    slots: tuple[Slot, ...]


def outline(optimizer: torch.optim.Optimizer) -> tuple[Outline, list[Tensor]]:
    """Return the outline of an optimizer's state and options, and its tensors in order."""
    tensors: list[Tensor] = []
    slots: list[Slot] = []

    def strip(value: Any, owner: int | None) -> Any:
        if isinstance(value, Tensor):
            shape, device_type = tuple(value.shape), value.device.type
            slots.append(Slot(len(slots), shape, value.dtype, device_type, owner))
            tensors.append(value.detach())
            return slots[-1]
        return _rebuilt(value, lambda each: strip(each, owner))

    numbers = {id(param): number for number, param in enumerate(_params(optimizer))}
    options = [
        {key: strip(value, None) for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    state = {}
    for key, value in optimizer.state.items():
        number = numbers.get(id(key))
        state[key if number is None else number] = strip(value, number)
    shapes = [[tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups]
    return Outline(shapes, options, state, tuple(slots)), tensors


def fill(plan: Outline, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return a tensor for each slot, to receive into, where this process's parameters are."""
    params = _params(optimizer)
    return [
        torch.empty(slot.shape, dtype=slot.dtype, device=_device(slot, params))
        for slot in plan.slots
    ]


def install(plan: Outline, tensors: list[Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Make ``plan`` with ``tensors`` the optimizer's state and options."""

    def restored(value: Any) -> Any:
        return tensors[value.index] if isinstance(value, Slot) else _rebuilt(value, restored)

    params = _params(optimizer)
    for group, options in zip(optimizer.param_groups, plan.options, strict=True):
        group.update({key: restored(value) for key, value in options.items()})
    optimizer.state.clear()
    for key, value in plan.state.items():
        is_number = isinstance(key, int) and key < len(params)
        optimizer.state[params[key] if is_number else key] = restored(value)


def _params(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _device(slot: Slot, params: list[Tensor]) -> torch.device:
    if slot.device_type == "cpu":
        return torch.device("cpu")
    owners = params if slot.owner is None else [params[slot.owner]]
    like = [param.device for param in owners if param.device.type == slot.device_type]
    return like[0] if like else torch.device(slot.device_type)


def _rebuilt(value: Any, change: Any) -> Any:
    """Return a container with its members changed, and anything else as it is."""
    if isinstance(value, dict):
        return {key: change(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(each) for each in value)
    return value
