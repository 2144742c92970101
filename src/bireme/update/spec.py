"""Optimizers as plain values: a name from ``torch.optim`` and numbers, so that they can travel.

Users write one or take it from a torch optimizer; stores give it to an
:class:`~bireme.update.runner.OptimizerRunner`.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.types.keys import Key

__all__ = ("OptimizerSpec", "Plain")

Plain: TypeAlias = bool | int | float | str | tuple[float | None, ...] | None
"""What a hyper-parameter may be."""


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer for a store to run, described by plain values.

    Args:
        name: A class of ``torch.optim``, in any case: ``"sgd"``, ``"AdamW"``.
        params: Its arguments, such as ``{"lr": 0.1}``; torch's defaults for the rest.
        lr_mult: Factor on ``lr`` for some keys, >= 0.
        wd_mult: Factor on ``weight_decay`` for some keys, >= 0.
        groups: Arguments that differ for some keys, as torch's parameter groups do.
        rescale_grad: Factor on every merged gradient, for example one over the number of
            devices to turn their sum into a mean.

    Raises:
        ConfigError: No such optimizer, an argument that it does not have, or a value out of
            range (including NaN and infinity).
        UnsupportedError: The optimizer cannot run in a store: it needs a closure (LBFGS) or
            updates that are recorded (``differentiable``, ``capturable``).

    Example:
        >>> spec = OptimizerSpec("sgd", {"lr": 0.1, "momentum": 0.9}, lr_mult={"bias": 2.0})
        >>> spec.name, spec.arguments("bias")["lr"], spec.arguments("weight")["lr"]
        ('SGD', 0.2, 0.1)
    """

    name: str
    params: Mapping[str, Plain] = field(default_factory=dict)
    lr_mult: Mapping[Key, float] = field(default_factory=dict)
    wd_mult: Mapping[Key, float] = field(default_factory=dict)
    groups: Mapping[Key, Mapping[str, Plain]] = field(default_factory=dict)
    rescale_grad: float = 1.0

    def __post_init__(self) -> None:
        cls = _class_named(self.name)
        object.__setattr__(self, "name", cls.__name__)
        object.__setattr__(self, "params", _plain(cls, self.params))
        groups = {key: _plain(cls, params) for key, params in self.groups.items()}
        object.__setattr__(self, "groups", groups)
        for what in ("lr_mult", "wd_mult"):
            object.__setattr__(self, what, _factors(what, getattr(self, what)))
        if "weight_decay" not in _arguments(cls) and self.wd_mult:
            raise ConfigError(f"{self.name} has no weight_decay, so wd_mult means nothing to it")
        object.__setattr__(self, "rescale_grad", _number("rescale_grad", self.rescale_grad))
        tried: set[object] = set()
        for key in (None, *groups, *self.lr_mult, *self.wd_mult):
            numbers = tuple(self.arguments(key).items())
            if numbers not in tried:
                self.build([_probe_parameter()], key)
                tried.add(numbers)

    @property
    def optimizer_class(self) -> type[torch.optim.Optimizer]:
        """The class of ``torch.optim`` that the spec names."""
        return _class_named(self.name)

    def arguments(self, key: Key | None) -> dict[str, Plain]:
        """Return every constructor argument for ``key``, defaults and multipliers included."""
        params: dict[str, Any] = {**_arguments(self.optimizer_class), **self.params}
        if key is None:
            return params
        params.update(self.groups.get(key, {}))
        if key in self.lr_mult:
            params["lr"] *= self.lr_mult[key]
        if key in self.wd_mult:
            params["weight_decay"] *= self.wd_mult[key]
        return params

    def describes(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether :meth:`from_optimizer` without keys would return the same numbers."""
        return not self.groups and all(group == self.params for group in _groups(optimizer))

    def build(
        self, params: Sequence[torch.Tensor], key: Key | None = None
    ) -> torch.optim.Optimizer:
        """Return the torch optimizer of ``params`` with the arguments of ``key``.

        Raises:
            ConfigError: torch refuses an argument or a parameter.
        """
        arguments = self.arguments(key)
        try:
            return self.optimizer_class(params, **arguments)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError) as error:
            where = "" if key is None else f" for key {key!r}"
            raise ConfigError(f"torch.optim.{self.name}{where}: {error}") from error

    @classmethod
    def from_optimizer(
        cls, optimizer: torch.optim.Optimizer, keys: Sequence[Key] | None = None
    ) -> "OptimizerSpec":
        """Describe a torch optimizer; its state is not taken over.

        Args:
            optimizer: An instance of a class of ``torch.optim``.
            keys: The key of every parameter, in the order of the optimizer's groups. Needed when
                the groups differ.

        Raises:
            UnsupportedError: The class is not one of ``torch.optim``, or cannot run in a store.
            ConfigError: Groups differ and ``keys`` is missing, or its length is wrong.

        Example:
            >>> weight = torch.zeros(2, requires_grad=True)
            >>> OptimizerSpec.from_optimizer(torch.optim.SGD([weight], lr=0.5)).params["lr"]
            0.5
        """
        kind = type(optimizer)
        if getattr(torch.optim, kind.__name__, None) is not kind:
            raise UnsupportedError(
                f"{kind.__module__}.{kind.__qualname__} is not a class of torch.optim, so it "
                "cannot be described by a name and numbers; use set_updater, or update on the "
                "worker (update_on_kvstore=False)"
            )
        groups = _groups(optimizer)
        if all(group == groups[0] for group in groups):
            return cls(kind.__name__, groups[0])
        return cls(kind.__name__, groups[0], groups=_by_key(optimizer, groups, keys))


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Plain]]:
    names = _arguments(_class_named(type(optimizer).__name__))
    return [
        {name: _to_plain(group[name]) for name in names if name in group}
        for group in optimizer.param_groups
    ]


def _by_key(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Mapping[str, Plain]],
    keys: Sequence[Key] | None,
) -> dict[Key, Mapping[str, Plain]]:
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if keys is None or len(keys) != sum(sizes):
        given = "none" if keys is None else str(len(keys))
        raise ConfigError(
            f"the optimizer has {len(sizes)} parameter groups that differ, so "
            f"OptimizerSpec.from_optimizer needs the {sum(sizes)} keys of its parameters, in "
            f"order; got {given}"
        )
    owners = [group for group, size in zip(groups, sizes, strict=True) for _ in range(size)]
    return dict(zip(keys, owners, strict=True))


@cache
def _classes() -> Mapping[str, type[torch.optim.Optimizer]]:
    found = (getattr(torch.optim, name) for name in dir(torch.optim))
    return {
        each.__name__.lower(): each
        for each in found
        if isinstance(each, type)
        and issubclass(each, torch.optim.Optimizer)
        and each is not torch.optim.Optimizer
    }


def _class_named(name: str) -> type[torch.optim.Optimizer]:
    if not isinstance(name, str) or name.lower() not in _classes():
        valid = ", ".join(sorted(each.__name__ for each in _classes().values()))
        raise ConfigError(f"torch.optim has no optimizer {name!r}; it has {valid}")
    if name.lower() == "lbfgs":
        raise UnsupportedError(
            "LBFGS needs a closure that computes the loss again, which a store cannot call; "
            "update on the worker"
        )
    return _classes()[name.lower()]


def _arguments(cls: type[torch.optim.Optimizer]) -> Mapping[str, object]:
    return _arguments_of(cls.__name__)


@cache
def _arguments_of(name: str) -> Mapping[str, object]:
    parameters = inspect.signature(_class_named(name)).parameters
    return {name: each.default for name, each in parameters.items() if name != "params"}


def _plain(cls: type[torch.optim.Optimizer], params: Mapping[str, Plain]) -> dict[str, Plain]:
    known = _arguments(cls)
    for name, value in params.items():
        if name not in known:
            raise ConfigError(
                f"torch.optim.{cls.__name__} has no argument {name!r}; it has {', '.join(known)}"
            )
        _check_plain(name, value)
    for name in ("differentiable", "capturable"):
        if params.get(name):
            raise UnsupportedError(f"a store's updates cannot be {name}; leave {name}=True out")
    return {name: _to_plain(value) for name, value in params.items()}


def _check_plain(name: str, value: object) -> None:
    if isinstance(value, (tuple, list)):
        for each in value:
            _check_plain(name, each)
    elif isinstance(value, torch.Tensor):
        _check_plain(name, value.item())
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, got {value!r}")
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise ConfigError(
            f"{name} must be a number, a string or a tuple of numbers, got {value!r:.60}"
        )


def _to_plain(value: object) -> Plain:
    if isinstance(value, torch.Tensor):
        value = value.item()
    if isinstance(value, (tuple, list)):
        return tuple(_to_plain(each) for each in value)  # type: ignore[misc]
    return value  # type: ignore[return-value]


def _number(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{what} must be a finite number, got {value!r}")
    return float(value)


def _factors(what: str, factors: Mapping[Key, float]) -> dict[Key, float]:
    for key, factor in factors.items():
        if _number(f"{what} of key {key!r}", factor) < 0:
            raise ConfigError(f"{what} of key {key!r} must be >= 0, got {factor!r}")
    return dict(factors)


def _probe_parameter() -> torch.Tensor:
    # Two-dimensional, because Muon refuses others.
    return torch.zeros(1, 1)
