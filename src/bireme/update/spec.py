"""Optimizers as plain values: a class by name and numbers, so that they can travel.

Users write one or take it from a torch optimizer; stores give it to an
:class:`~bireme.update.runner.OptimizerRunner`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.types.keys import Key
from bireme.update.classes import arguments_of, canonical_name, class_named, name_of
from bireme.update.numbers import LEAST_RATE, Plain, factors, number, to_plain

__all__ = ("OptimizerSpec", "Plain")


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer for a store to run, described by plain values.

    Args:
        name: A class of ``torch.optim``, in any case: ``"sgd"``, ``"AdamW"``. Or another one by
            its import path: ``"mypkg.optim:Lion"``. Servers import it only when the job allows
            its module (``bireme run --allow-optimizer mypkg.optim``).
        params: Its arguments, such as ``{"lr": 0.1}``; the class's defaults for the rest.
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
        cls = class_named(self.name)
        object.__setattr__(self, "name", canonical_name(self.name))
        object.__setattr__(self, "params", _plain(self.name, cls, self.params))
        if not isinstance(self.groups, Mapping):
            raise ConfigError(f"groups must map keys to arguments, got {self.groups!r:.60}")
        groups = {key: _plain(self.name, cls, params) for key, params in self.groups.items()}
        object.__setattr__(self, "groups", groups)
        for what, argument in (("lr_mult", "lr"), ("wd_mult", "weight_decay")):
            object.__setattr__(self, what, factors(what, getattr(self, what)))
            if getattr(self, what) and argument not in arguments_of(cls).names:
                raise ConfigError(f"{self.name} has no {argument}: {what} means nothing to it")
        object.__setattr__(self, "rescale_grad", number("rescale_grad", self.rescale_grad))
        tried: set[object] = set()
        for key in (None, *groups, *self.lr_mult, *self.wd_mult):
            numbers = tuple(self.arguments(key).items())
            if numbers not in tried:
                self.build([_probe_parameter()], key)
                tried.add(numbers)

    @property
    def optimizer_class(self) -> type[torch.optim.Optimizer]:
        """The class that the spec names."""
        return class_named(self.name)

    @property
    def title(self) -> str:
        """The class as messages name it: ``torch.optim.SGD``, ``mypkg.optim:Lion``."""
        return self.name if ":" in self.name else f"torch.optim.{self.name}"

    def arguments(self, key: Key | None) -> dict[str, Plain]:
        """Return every constructor argument for ``key``, defaults and multipliers included."""
        params: dict[str, Any] = {**arguments_of(self.optimizer_class).defaults, **self.params}
        if key is None:
            return params
        params.update(self.groups.get(key, {}))
        for argument, given in (("lr", self.lr_mult), ("weight_decay", self.wd_mult)):
            if key in given:
                params[argument] = _multiplied(self.title, argument, params, given[key])
        return params

    def check_covers(self, key: Key) -> None:
        """Refuse a key that none of a torch optimizer's different groups holds.

        Raises:
            ConfigError: There are groups by key, and ``key`` is in none.
        """
        if self.groups and key not in self.groups:
            raise ConfigError(
                f"key {key!r} is none of the optimizer's parameters, whose groups differ: it has "
                f"{', '.join(map(repr, list(self.groups)[:20]))}; give keys the parameters' names"
            )

    def describes(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether :meth:`from_optimizer` without keys would return the same numbers."""
        params, groups = _numbers_of(optimizer, None)
        return (self.params, self.groups) == (params, groups)

    def build(
        self, params: Sequence[torch.Tensor], key: Key | None = None
    ) -> torch.optim.Optimizer:
        """Return the torch optimizer of ``params`` with the arguments of ``key``.

        Raises:
            ConfigError: torch refuses an argument or a parameter.
        """
        arguments = self.arguments(key)
        # Constructors refuse what schedulers reach all the same: a rate of 0 or a rounding below.
        rate = arguments.get("lr")
        is_still = isinstance(rate, int | float) and LEAST_RATE < rate <= 0
        first = {**arguments, "lr": 1e-3} if is_still else arguments
        try:
            optimizer = self.optimizer_class(params, **first)  # type: ignore[arg-type]
        except Exception as error:  # a class by import path may raise anything
            where = "" if key is None else f" for key {key!r}"
            raise ConfigError(f"{self.title}{where}: {error}") from error
        if is_still:
            optimizer.param_groups[0]["lr"] = arguments["lr"]
        return optimizer

    @classmethod
    def from_optimizer(
        cls, optimizer: torch.optim.Optimizer, keys: Sequence[Key] | None = None
    ) -> "OptimizerSpec":
        """Describe a torch optimizer; its state is not taken over.

        Args:
            optimizer: An instance of a class of ``torch.optim``, or of another one that can be
                imported.
            keys: The key of every parameter, in the order of the optimizer's groups. Needed when
                the groups differ, unless the optimizer knows its parameters' names
                (``SGD(model.named_parameters())``): those are the keys then.

        Raises:
            UnsupportedError: The class has no import path, or cannot run in a store.
            ConfigError: Groups differ and ``keys`` is missing, or its length is wrong.

        Example:
            >>> weight = torch.zeros(2, requires_grad=True)
            >>> OptimizerSpec.from_optimizer(torch.optim.SGD([weight], lr=0.5)).params["lr"]
            0.5
        """
        params, groups = _numbers_of(optimizer, keys)
        return cls(name_of(type(optimizer)), params, groups=groups)


def _numbers_of(
    optimizer: torch.optim.Optimizer, keys: Sequence[Key] | None
) -> tuple[dict[str, Plain], dict[Key, Mapping[str, Plain]]]:
    """Return the common numbers, and those of each key where groups differ."""
    names = arguments_of(type(optimizer)).names
    title = type(optimizer).__name__
    if not optimizer.param_groups:
        raise ConfigError(f"the {title} has no parameter groups")
    for index, group in enumerate(optimizer.param_groups):
        missing = [name for name in names if name in optimizer.defaults and name not in group]
        if missing:
            raise ConfigError(f"parameter group {index} of the {title} lacks {missing[0]!r}")
    groups = [
        {name: to_plain(name, group[name]) for name in names if name in group}
        for group in optimizer.param_groups
    ]
    if all(group == groups[0] for group in groups):
        return groups[0], {}
    return groups[0], _by_key(optimizer, groups, keys)


def _by_key(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Mapping[str, Plain]],
    keys: Sequence[Key] | None,
) -> dict[Key, Mapping[str, Plain]]:
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if keys is None and all("param_names" in group for group in optimizer.param_groups):
        keys = [name for group in optimizer.param_groups for name in group["param_names"]]
    if keys is None or len(keys) != sum(sizes):
        given = "none" if keys is None else str(len(keys))
        raise ConfigError(
            f"the optimizer has {len(sizes)} parameter groups that differ, so the {sum(sizes)} "
            f"keys of its parameters are needed, in order; got {given}. Give it named parameters, "
            "whose names are keys then (torch.optim.SGD(model.named_parameters(), ...)), or set "
            "OptimizerSpec.from_optimizer(optimizer, keys)"
        )
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"two of the optimizer's parameters have the key {twice!r}")
    owners = [group for group, size in zip(groups, sizes, strict=True) for _ in range(size)]
    return dict(zip(keys, owners, strict=True))


def _plain(
    title: str, cls: type[torch.optim.Optimizer], params: Mapping[str, Plain]
) -> dict[str, Plain]:
    known = arguments_of(cls).names
    if not isinstance(params, Mapping):
        raise ConfigError(f"an optimizer's params must map names to values, got {params!r:.60}")
    for name in params:
        if name not in known:
            raise ConfigError(f"{title} has no argument {name!r:.60}; it has {', '.join(known)}")
    for name in ("differentiable", "capturable"):
        if params.get(name):
            raise UnsupportedError(f"a store's updates cannot be {name}; leave {name}=True out")
    return {name: to_plain(name, value) for name, value in params.items()}


def _multiplied(title: str, name: str, params: Mapping[str, Any], factor: float) -> float:
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{title} has no number {name} to multiply by {factor}: {value!r:.60}")
    return value * factor


def _probe_parameter() -> torch.Tensor:
    # Two-dimensional, because Muon refuses others.
    return torch.zeros(1, 1)
