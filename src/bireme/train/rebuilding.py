"""A net from a checkpoint: its class by name, and its values. :class:`bireme.Module` calls it."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from bireme.errors import ConfigError, DataError

__all__ = ("class_path", "load_state", "make_net")


def class_path(net: nn.Module) -> str:
    """Return where the class of ``net`` can be imported from.

    Example:
        >>> class_path(nn.Linear(1, 1))
        'torch.nn.modules.linear:Linear'
    """
    cls = type(net)
    return f"{cls.__module__}:{cls.__qualname__}"


def make_net(path: str) -> nn.Module:
    """Return a new net of the class that :func:`class_path` named.

    Only a subclass of ``torch.nn.Module`` is ever called, and only without arguments; its module
    is imported if it was not yet.

    Raises:
        ConfigError: There is no such class, it is no net, or it needs arguments.

    Example:
        >>> make_net("torch.nn.modules.activation:ReLU")
        ReLU()
    """
    advice = "build the net yourself and pass it as net="
    module_name, _, qualname = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for name in qualname.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the net's class {path!r} cannot be imported ({error}); {advice}") from (
            error
        )
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ConfigError(f"{path!r} is no torch.nn.Module; {advice}")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise ConfigError(f"{path!r} needs arguments ({error}); {advice}") from error
    return found()


def load_state(net: nn.Module, state: Mapping[str, Any], source: str) -> None:
    """Put ``state`` into ``net``.

    Args:
        net: Changed in place; left as it was on an error.
        state: As ``net.state_dict()`` returns it.
        source: Where it comes from, for errors.

    Raises:
        DataError: Names, shapes or dtypes differ.
    """
    own = net.state_dict()
    for what, names in (("lacks", own.keys() - state.keys()), ("has", state.keys() - own.keys())):
        if names:
            raise DataError(
                f"{source} does not fit {type(net).__name__}: it {what} {sorted(names)[0]!r} and "
                f"{len(names) - 1} more entries; pass a net of the structure that was saved as net="
            )
    for name, value in own.items():
        if _shape(value) != _shape(state[name]):
            raise DataError(
                f"{source} does not fit {type(net).__name__}: {name!r} is {_shape(state[name])} "
                f"there and {_shape(value)} here"
            )
    net.load_state_dict(state)


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return "no tensor"
