"""Backends by name; each is imported when it is asked for."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from bireme.errors import ConfigError
from bireme.launch.base import Backend

__all__ = ("BACKENDS", "find_backend")

BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "local": "bireme.launch.backends.local:LocalBackend",
        "ssh": "bireme.launch.backends.ssh:SshBackend",
        "mpi": "bireme.launch.backends.mpi:MpiBackend",
        "slurm": "bireme.launch.backends.slurm:SlurmBackend",
        "sge": "bireme.launch.backends.sge:SgeBackend",
    }
)
"""Where each backend's class is: the file has the backend's name."""


def find_backend(name: str) -> type[Backend]:
    """Return the class of a backend.

    Raises:
        ConfigError: There is none of that name.

    Example:
        >>> find_backend("local").summary
        'this machine'
    """
    if name not in BACKENDS:
        raise ConfigError(f"unknown launcher {name!r}; valid ones are {', '.join(BACKENDS)}")
    module, _, cls = BACKENDS[name].partition(":")
    found: type[Backend] = getattr(importlib.import_module(module), cls)
    return found
