"""Launchers by name; each is imported when it is asked for."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from bireme.errors import ConfigError
from bireme.launch.base import Launcher

__all__ = ("LAUNCHERS", "find_launcher")

LAUNCHERS: Mapping[str, str] = MappingProxyType({"local": "bireme.launch.local:LocalLauncher"})
"""Where each launcher's class is."""


def find_launcher(name: str) -> type[Launcher]:
    """Return the class of a launcher.

    Raises:
        ConfigError: There is none of that name.

    Example:
        >>> find_launcher("local").summary
        'this machine'
    """
    if name not in LAUNCHERS:
        raise ConfigError(f"unknown launcher {name!r}; valid ones are {', '.join(LAUNCHERS)}")
    module, _, cls = LAUNCHERS[name].partition(":")
    found: type[Launcher] = getattr(importlib.import_module(module), cls)
    return found
