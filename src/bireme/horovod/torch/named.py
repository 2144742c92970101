"""Names and groups of an optimizer's parameters, checked. Called by the distributed optimizers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from bireme.errors import ConfigError
from bireme.horovod.common.util import split_list

__all__ = ("bunches", "check_groups", "name_parameters", "unnamed")

ParamGroups = Sequence[dict[str, Any]]


def name_parameters(
    param_groups: ParamGroups, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> dict[Tensor, str]:
    """Return the name of each parameter, which is the name of its operation.

    Args:
        param_groups: The optimizer's.
        named_parameters: Such as ``model.named_parameters()``; None: parameters are numbered.

    Raises:
        ConfigError: Names are no pairs, appear twice, or are missing for some parameters.
    """
    if named_parameters is None:
        return {
            param: unnamed(row, column)
            for row, group in enumerate(param_groups)
            for column, param in enumerate(group["params"])
        }
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ConfigError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    twice = sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    if twice:
        raise ConfigError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(twice)
        )
    names = {param: name for name, param in sorted(pairs, key=lambda pair: pair[0])}
    absent = [
        f"{tuple(param.shape)} at {row}.{column}"
        for row, group in enumerate(param_groups)
        for column, param in enumerate(group["params"])
        if param not in names
    ]
    if absent:
        raise ConfigError(
            "named_parameters was specified, but one or more model parameters were not named: "
            f"those of shape {'; '.join(absent)} (group.index)"
        )
    return names


def unnamed(row: int, column: int) -> str:
    """Return the name of a parameter that nobody named.

    Example:
        >>> unnamed(0, 2)
        'allreduce.noname.0.2'
    """
    return f"allreduce.noname.{row}.{column}"


def check_groups(groups: object) -> None:
    """Refuse what says nothing about which gradients travel together.

    Raises:
        ConfigError: It is neither a number above 0 nor a list of lists of different tensors.
    """
    if groups is None:
        return
    if isinstance(groups, int) and not isinstance(groups, bool) and groups > 0:
        return
    if not isinstance(groups, list):
        raise ConfigError(
            f"groups should be an integer > 0 or a list of list of torch.Tensor, got {groups!r}"
        )
    seen = set()
    for param in (param for group in groups for param in group):
        if not isinstance(param, Tensor):
            raise ConfigError(f"groups must consist of torch.Tensor, got {type(param).__name__}")
        if id(param) in seen:
            raise ConfigError("A parameter can only appear once in groups.")
        seen.add(id(param))


def bunches(
    params: Sequence[Tensor], groups: int | list[list[Tensor]] | None
) -> list[list[Tensor]]:
    """Return which parameters' gradients travel together; every one is in one bunch.

    Args:
        params: In an order that all processes share.
        groups: Checked by `check_groups`.
    """
    if groups is None:
        return [[param] for param in params]
    if isinstance(groups, int):
        return [bunch for bunch in split_list(list(params), groups) if bunch]
    here = {id(param) for param in params}
    chosen = [[param for param in group if id(param) in here] for group in groups]
    grouped = {id(param) for group in chosen for param in group}
    singles = [[param] for param in params if id(param) not in grouped]
    return [bunch for bunch in chosen if bunch] + singles
