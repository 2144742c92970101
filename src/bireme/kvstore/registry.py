"""The plug-in stores that scripts register, and the names that they may not take.

Knows no store: :mod:`bireme.kvstore.factory` asks it, and ``KVStoreBase.register`` tells it.
"""

from bireme.errors import ConfigError
from bireme.kvstore.base import KVStoreBase, Plugin

__all__ = ("BUILT_IN", "PLUGINS", "Registry", "is_coming", "register")

BUILT_IN = (
    "local",
    "local_update_cpu",
    "local_allreduce_cpu",
    "device",
    "local_allreduce_device",
    "nccl",
    "dist",
    "dist_sync",
    "dist_async",
    "dist_sync_device",
    "dist_device_sync",
    "dist_async_device",
    "dist_device_async",
    "dist_bounded",
    "dist_bounded_device",
    "dist_local",
    "dist_local_device",
    "allreduce",
    "horovod",
)
"""Types that work in this version."""

_COMING = ("byteps",)


def is_coming(name: str) -> bool:
    """Return whether ``name`` is a store type of a later version.

    Example:
        >>> is_coming("byteps"), is_coming("dist_sync")
        (True, False)
    """
    return name in _COMING


class Registry:
    """The plug-in stores of a process, by lower-cased class name.

    Example:
        >>> Registry().names()
        []
    """

    def __init__(self) -> None:
        self._classes: dict[str, type[KVStoreBase]] = {}

    def add(self, cls: type[KVStoreBase]) -> None:
        """Make ``cls`` known.

        Raises:
            ConfigError: ``cls`` is no store class, or another class or a built-in type has the
                name. The same class defined again (as in a notebook) replaces the former.
        """
        if not isinstance(cls, type) or not issubclass(cls, KVStoreBase):
            raise ConfigError(f"register takes a subclass of KVStoreBase, got {cls!r:.60}")
        name = cls.__name__.lower()
        known = self._classes.get(name)
        if name in BUILT_IN or is_coming(name):
            raise ConfigError(f"{name!r} is a built-in store type; rename class {cls.__name__}")
        if known is not None and _qualified(known) != _qualified(cls):
            raise ConfigError(
                f"store type {name!r} is already registered by {_qualified(known)}; rename "
                f"{_qualified(cls)}"
            )
        self._classes[name] = cls

    def get(self, name: str) -> type[KVStoreBase] | None:
        """Return the class known as ``name``."""
        return self._classes.get(name)

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._classes)


# A decorator needs one place per process to write to; tests make registries of their own.
PLUGINS = Registry()


def register(cls: Plugin) -> Plugin:
    """Make a plug-in store known to :func:`~bireme.kvstore.create` by its lower-cased class name.

    Use it as a decorator, also under the name ``KVStoreBase.register``.

    Raises:
        ConfigError: Another class has the name, or ``cls`` is no store class.

    Source:
        MXNet 1.9 ``KVStoreBase.register``, which replaced other classes with a warning.
    """
    PLUGINS.add(cls)
    return cls


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
