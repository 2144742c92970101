"""Makes stores by name: the built-in ones, and plug-ins from the registry."""

import inspect
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, overload

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.kvstore.device import DeviceStore
from bireme.kvstore.local import LocalStore
from bireme.kvstore.registry import BUILT_IN, PLUGINS, is_coming

__all__ = ("create",)

_BuiltIn: TypeAlias = Literal[
    "local",
    "local_update_cpu",
    "local_allreduce_cpu",
    "device",
    "local_allreduce_device",
    "nccl",
]

_CLASSES: Mapping[str, type[LocalStore] | type[DeviceStore]] = {
    "local": LocalStore,
    "local_update_cpu": LocalStore,
    "local_allreduce_cpu": LocalStore,
    "device": DeviceStore,
    "local_allreduce_device": DeviceStore,
    "nccl": DeviceStore,
}


@overload
def create(name: _BuiltIn = "local", **options: object) -> KVStore: ...


@overload
def create(name: str, **options: object) -> KVStoreBase: ...


def create(name: str = "local", **options: object) -> KVStoreBase:
    """Return a new store.

    Args:
        name: Its type, in any case: ``local`` (also ``local_update_cpu``,
            ``local_allreduce_cpu``), ``device`` (also ``local_allreduce_device``, ``nccl``), or
            that of a registered plug-in.
        options: Passed to the constructor of a plug-in; the built-in stores take none.

    Raises:
        ConfigError: The type or an option is unknown.
        UnsupportedError: The type spans machines, which this version does not.

    Example:
        >>> create("local_allreduce_cpu").type
        'local_allreduce_cpu'
    """
    if not isinstance(name, str):
        raise ConfigError(f"a store type must be a string, got {name!r:.60}")
    kind = name.lower()
    plugin = PLUGINS.get(kind)
    if plugin is not None:
        return _made(plugin, kind, options)
    if kind in _CLASSES:
        if options:
            raise ConfigError(f"a {kind!r} store takes no options, got {', '.join(options)}")
        return _CLASSES[kind](kind)
    valid = ", ".join([*BUILT_IN, *PLUGINS.names()])
    if is_coming(kind):
        raise UnsupportedError(
            f"store type {name!r} spans machines and comes with the parameter server in a coming "
            f"version; these work now: {valid}"
        )
    raise ConfigError(f"unknown store type {name!r}; valid types are {valid}")


def _made(
    plugin: Callable[..., KVStoreBase], name: str, options: Mapping[str, object]
) -> KVStoreBase:
    try:
        inspect.signature(plugin).bind(**options)
    except TypeError as error:
        raise ConfigError(f"store type {name!r}: {error}") from error
    return plugin(**options)
