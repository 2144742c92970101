"""Saved optimizer states as ``state_dict`` of a plain ``torch.optim`` optimizer, and back.

``bireme.optimizer_states`` is this module. With it a run moves from servers to plain PyTorch and
back: what ``store.save_optimizer_states`` wrote becomes what ``optimizer.load_state_dict`` takes,
and the reverse. A :class:`bireme.Trainer` needs neither: its ``state_dict()`` is that of plain
torch wherever the optimizer runs.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from bireme.errors import ConfigError, DataError
from bireme.types.keys import Key
from bireme.update import states as files
from bireme.update.classes import arguments_of, canonical_name, class_named, is_of_torch, name_of
from bireme.update.numbers import to_plain
from bireme.update.spec import OptimizerSpec

__all__ = ("from_state_dict", "to_state_dict")

_PREFIX = "trainer0/"
"""Of a Trainer's keys."""

Groups = list[tuple[dict[str, Any], list[str]]]
"""Each parameter group's options, and the names of its parameters."""


def to_state_dict(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    keys: Mapping[str, Key] | None = None,
) -> dict[str, Any]:
    """Read saved optimizer states as the ``state_dict`` of a plain optimizer of ``model``.

    Args:
        path: What ``save_optimizer_states`` of any store wrote: a file or a folder.
        model: Whose parameters were trained.
        optimizer: The optimizer that will load it: its groups are followed, its own numbers are
            not. Without it, parameters are in the model's order, in one group for each set of
            numbers.
        keys: The store's key of a parameter's name, where it is another. Default: the name
            itself, that of a ``Trainer``'s store, or the parameter's number, for all alike.

    Raises:
        ConfigError: The file belongs to another model or optimizer.
        DataError: It is truncated, corrupt, or of another format.
        OSError: It cannot be read.

    Example:
        >>> import tempfile
        >>> from bireme.kvstore import LocalStore
        >>> net, store = nn.Linear(1, 1, bias=False), LocalStore()
        >>> store.init("weight", net.weight.detach())
        >>> store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.5, "momentum": 0.9}))
        >>> store.push("weight", torch.ones(1, 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store.save_optimizer_states(f"{folder}/states")
        ...     found = to_state_dict(f"{folder}/states", net)
        >>> found["state"], found["param_groups"][0]["momentum"]
        ({0: {'momentum_buffer': tensor([[1.]])}}, 0.9)
    """
    content = files.read(path)
    named = dict(model.named_parameters())
    key_of = _keys(named, content, keys, os.fspath(path))
    files.check(
        os.fspath(path),
        content.states,
        {key: named[name].shape for name, key in key_of.items()},
    )
    groups = _groups(content, named, key_of, optimizer)
    order = [name for _, names in groups for name in names]
    places = {name: place for place, name in enumerate(order)}
    left_out = [key for name, key in key_of.items() if name not in places and key in content.states]
    if left_out:
        raise ConfigError(
            f"{os.fspath(path)} holds a state for key {left_out[0]!r}, which is in no group of the "
            "optimizer"
        )
    return {
        "state": {
            places[name]: dict(content.states[key_of[name]])
            for name in order
            if key_of[name] in content.states
        },
        "param_groups": [
            {**options, "params": [places[name] for name in names]} for options, names in groups
        ],
    }


def from_state_dict(
    path: str | os.PathLike[str],
    state_dict: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | str,
    *,
    keys: Mapping[str, Key] | None = None,
) -> None:
    """Write a plain optimizer's ``state_dict`` so that ``load_optimizer_states`` can read it.

    Args:
        path: The file; replaced as a whole.
        state_dict: From ``optimizer.state_dict()``.
        model: Whose parameters it belongs to.
        optimizer: The optimizer, or the name of its class. By a name alone, the parameters are
            taken to be the model's in order, all of them or all that require gradients.
        keys: The store's key of a parameter's name; default: the name itself.

    Raises:
        ConfigError: The states are not those of this model and optimizer.
        OSError: The file cannot be written.
    """
    named = dict(model.named_parameters())
    groups, order = _taken_apart(state_dict, named, optimizer)
    key_of = _named_keys(named, keys)
    numbers = state_dict["param_groups"]
    indices = [index for group in numbers for index in group["params"]]
    states = {
        key_of[name]: dict(state_dict["state"][index])
        for name, index in zip(order, indices, strict=True)
        if state_dict["state"].get(index)
    }
    shapes = {key_of[name]: named[name].shape for name in order}
    files.check("the state_dict", states, shapes)
    files.save(os.fspath(path), _spec(optimizer, groups, key_of), states)


def _keys(
    named: Mapping[str, torch.Tensor],
    content: files.Content,
    keys: Mapping[str, Key] | None,
    source: str,
) -> Mapping[str, Key]:
    known = {*content.states, *(key for key, _ in content.own_numbers)}
    schemes: list[Mapping[str, Key]] = [_named_keys(named, keys)]
    if keys is None:
        schemes.append({name: f"{_PREFIX}{name}" for name in named})
        schemes.append({name: number for number, name in enumerate(named)})
    for scheme in schemes:
        if known <= set(scheme.values()):
            return scheme
    odd = sorted(map(repr, known - set(schemes[0].values())))
    raise ConfigError(
        f"{source} holds states of keys that are no parameters of the model, such as "
        f"{odd[0]}; say by keys= which key each parameter's name has"
    )


def _named_keys(
    named: Mapping[str, torch.Tensor], keys: Mapping[str, Key] | None
) -> Mapping[str, Key]:
    unknown = [name for name in keys or () if name not in named]
    if unknown:
        raise ConfigError(f"keys names {unknown[0]!r}, which is no parameter of the model")
    return {name: name for name in named} | dict(keys or {})


def _groups(
    content: files.Content,
    named: Mapping[str, torch.Tensor],
    key_of: Mapping[str, Key],
    optimizer: torch.optim.Optimizer | None,
) -> Groups:
    if optimizer is not None:
        return [
            ({**_options(group), **_numbers(content, [key_of[name] for name in names])}, names)
            for group, names in _groups_of(content, named, optimizer)
        ]
    if content.numbers is None or not is_of_torch(content.optimizer):
        raise ConfigError(
            f"the states of {content.optimizer} were saved without what makes its groups; give "
            "to_state_dict the optimizer"
        )
    together: dict[str, list[str]] = {}
    for name in named:
        together.setdefault(repr(content.numbers_of(key_of[name])), []).append(name)
    groups = list(together.values())
    numbers = [content.numbers_of(key_of[names[0]]) for names in groups]
    # The class itself says which further options a group has.
    made = class_named(content.optimizer)(
        [
            {"params": [named[name] for name in names], **own}
            for names, own in zip(groups, numbers, strict=True)
        ],
        **numbers[0],
    )
    return [
        (_options(group), names) for group, names in zip(made.param_groups, groups, strict=True)
    ]


def _groups_of(
    content: files.Content, named: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> list[tuple[dict[str, Any], list[str]]]:
    name = name_of(type(optimizer))
    if name != content.optimizer:
        raise ConfigError(f"the states are of {content.optimizer}, but the optimizer is a {name}")
    return [(group, _names(group["params"], named)) for group in optimizer.param_groups]


def _names(params: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]) -> list[str]:
    by_tensor = {id(param): name for name, param in named.items()}
    try:
        return [by_tensor[id(param)] for param in params]
    except KeyError:
        raise ConfigError("the optimizer holds a parameter that is not one of the model") from None


def _numbers(content: files.Content, keys: Sequence[Key]) -> dict[str, Any]:
    found = [content.numbers_of(key) for key in keys]
    if any(each != found[0] for each in found):
        raise ConfigError(
            f"keys {keys[0]!r} and others of one group were saved with different numbers; make "
            "the optimizer with a group for each"
        )
    return found[0] if found else {}


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _taken_apart(
    state_dict: Mapping[str, Any],
    named: Mapping[str, torch.Tensor],
    optimizer: torch.optim.Optimizer | str,
) -> tuple[Groups, list[str]]:
    """Return the groups of a state_dict, and the names of all its parameters in order."""
    try:
        saved = [(_options(group), len(group["params"])) for group in state_dict["param_groups"]]
        state_dict["state"].items()
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"this is no optimizer's state_dict: it lacks a part ({error!r})"
        ) from error
    order = _order(saved, named, optimizer)
    groups, start = [], 0
    for options, size in saved:
        groups.append((options, order[start : start + size]))
        start += size
    return groups, order


def _order(
    saved: Sequence[tuple[Mapping[str, Any], int]],
    named: Mapping[str, torch.Tensor],
    optimizer: torch.optim.Optimizer | str,
) -> list[str]:
    sizes = [size for _, size in saved]
    if isinstance(optimizer, torch.optim.Optimizer):
        order = [
            name for group in optimizer.param_groups for name in _names(group["params"], named)
        ]
        own = [len(group["params"]) for group in optimizer.param_groups]
        if own != sizes:
            raise ConfigError(f"the states are of groups of {sizes} parameters, not {own}")
        return order
    if all("param_names" in options for options, _ in saved):
        order = [str(name) for options, _ in saved for name in options["param_names"]]
        if len(order) == sum(sizes) and set(order) <= named.keys():
            return order
    trained = [name for name, param in named.items() if param.requires_grad]
    for order in (list(named), trained):
        if len(saved) == 1 and len(order) == sizes[0]:
            return order
    raise ConfigError(
        f"the states are of groups of {sizes} parameters, and the model has {len(named)}; give "
        "from_state_dict the optimizer itself, which knows which is which"
    )


def _spec(
    optimizer: torch.optim.Optimizer | str, groups: Groups, key_of: Mapping[str, Key]
) -> OptimizerSpec:
    if isinstance(optimizer, torch.optim.Optimizer):
        name = name_of(type(optimizer))
    else:
        name = canonical_name(optimizer)
    known = arguments_of(class_named(name)).names
    numbers = [
        {each: to_plain(each, options[each]) for each in known if each in options}
        for options, _ in groups
    ]
    if not numbers:
        raise DataError("the state_dict has no parameter groups")
    if all(each == numbers[0] for each in numbers):
        return OptimizerSpec(name, numbers[0])
    own = {
        key_of[each]: mine
        for (_, names), mine in zip(groups, numbers, strict=True)
        for each in names
    }
    return OptimizerSpec(name, numbers[0], groups=own)
