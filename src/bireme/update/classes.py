"""Which optimizers have a name: the classes of ``torch.optim``, and others by import path.

Specs ask here. A server asks :func:`check_allowed` before it looks at anything else of an optimizer
that was sent: importing a module runs its code, so only what the job allows is imported.
"""

import importlib
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.update.numbers import Plain, is_plain

__all__ = (
    "Arguments",
    "arguments_of",
    "canonical_name",
    "check_allowed",
    "class_named",
    "is_of_torch",
    "name_of",
)

_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z]\w*)", re.ASCII)
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a class's constructor takes besides the parameters."""

    names: tuple[str, ...]
    """All of them, in order."""
    defaults: Mapping[str, Plain]
    """Those that have a default which can travel."""


def is_of_torch(name: str) -> bool:
    """Return whether ``name`` is that of a class of ``torch.optim``, not an import path.

    Example:
        >>> is_of_torch("SGD"), is_of_torch("mypkg.optim:Lion")
        (True, False)
    """
    return ":" not in name


def check_allowed(name: object, allowed: Collection[str]) -> None:
    """Refuse an optimizer that the job does not allow; imports nothing.

    Args:
        name: A class of ``torch.optim``, which is always allowed, or ``module:Class``.
        allowed: Modules, and single classes as ``module:Class``.

    Raises:
        ConfigError: It is neither, and how to allow it.

    Example:
        >>> check_allowed("mypkg.optim:Lion", {"mypkg.optim"})
    """
    if not isinstance(name, str):
        raise ConfigError(f"an optimizer's name must be a string, got {name!r:.60}")
    if is_of_torch(name):
        return
    module = _parts(name)[0]
    if module not in allowed and name not in allowed:
        raise ConfigError(
            f"optimizer {name!r} is not one that this job lets its servers import; if you trust "
            f"module {module!r}, start the job with: bireme run --allow-optimizer {module} ..., or "
            f"set BIREME_ALLOWED_OPTIMIZERS={module} for every process"
        )


def class_named(name: str) -> type[torch.optim.Optimizer]:
    """Return the class that ``name`` stands for.

    Args:
        name: A class of ``torch.optim`` in any case, or ``module:Class``, which is imported.

    Raises:
        ConfigError: There is none.
        UnsupportedError: It needs a closure.
    """
    if not isinstance(name, str):
        raise ConfigError(f"an optimizer's name must be a string, got {name!r:.60}")
    found = _of_torch().get(name.lower()) if is_of_torch(name) else _imported(name)
    if found is None:
        valid = ", ".join(sorted(each.__name__ for each in _of_torch().values()))
        raise ConfigError(
            f"torch.optim has no optimizer {name!r:.60}; it has {valid}; another class is named "
            "by its import path, such as 'mypkg.optim:Lion'"
        )
    if issubclass(found, torch.optim.LBFGS):
        raise UnsupportedError(
            f"{found.__name__} needs a closure that computes the loss again, which a store cannot "
            "call; update on the worker"
        )
    return found


def canonical_name(name: str) -> str:
    """Return ``name`` as the class of ``torch.optim`` spells it; an import path as it is.

    Raises:
        ConfigError: There is no such class.

    Example:
        >>> canonical_name("adamw"), canonical_name("torch.optim:SGD")
        ('AdamW', 'SGD')
    """
    cls = class_named(name)
    return cls.__name__ if _of_torch().get(cls.__name__.lower()) is cls else name


def name_of(cls: type[torch.optim.Optimizer]) -> str:
    """Return the name by which :func:`class_named` finds ``cls``.

    Raises:
        UnsupportedError: It has none, because it was made inside a function.

    Example:
        >>> name_of(torch.optim.SGD)
        'SGD'
    """
    if _of_torch().get(cls.__name__.lower()) is cls:
        return cls.__name__
    path = f"{cls.__module__}:{cls.__qualname__}"
    try:
        if class_named(path) is cls:
            return path
    except ConfigError:
        pass
    raise UnsupportedError(
        f"{cls.__module__}.{cls.__qualname__} is not a class of torch.optim, nor one that can be "
        "imported from the top level of a module, so it cannot be described by a name and numbers; "
        "use set_updater, or update on the worker (update_on_kvstore=False)"
    )


def arguments_of(cls: type[torch.optim.Optimizer]) -> Arguments:
    """Return what the constructor of ``cls`` takes besides the parameters.

    Example:
        >>> arguments_of(torch.optim.Adadelta).names[:3]
        ('lr', 'rho', 'eps')
    """
    # mypy takes Optimizer.__hash__ for the hash of its classes.
    return _arguments(cls)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _arguments(cls: type[torch.optim.Optimizer]) -> Arguments:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{cls.__qualname__} does not tell its arguments: {error}") from error
    named = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name != "params"
    ]
    defaults = {
        each.name: each.default
        for each in named
        if each.default is not each.empty and is_plain(each.default)
    }
    return Arguments(tuple(each.name for each in named), defaults)


@cache
def _of_torch() -> Mapping[str, type[torch.optim.Optimizer]]:
    found = (getattr(torch.optim, name) for name in dir(torch.optim))
    return {
        each.__name__.lower(): each
        for each in found
        if isinstance(each, type)
        and issubclass(each, torch.optim.Optimizer)
        and each is not torch.optim.Optimizer
    }


def _parts(name: str) -> tuple[str, str]:
    match = _PATH.fullmatch(name) if len(name) <= _LONGEST else None
    if match is None:
        raise ConfigError(
            f"an optimizer's import path must look like 'mypkg.optim:Lion', got {name!r:.60}"
        )
    return match["module"], match["name"]


def _imported(name: str) -> type[torch.optim.Optimizer]:
    module, attribute = _parts(name)
    try:
        # Not getattr: a module's __getattr__ is code that a name could reach.
        found = vars(importlib.import_module(module)).get(attribute)
    except Exception as error:  # whatever the module's own code raises
        raise ConfigError(f"cannot import module {module!r} of optimizer {name!r}: {error}") from (
            error
        )
    if (
        not isinstance(found, type)
        or not issubclass(found, torch.optim.Optimizer)
        or found is torch.optim.Optimizer
    ):
        raise ConfigError(
            f"{name!r} must name a subclass of torch.optim.Optimizer, got {found!r:.60}"
        )
    return found
