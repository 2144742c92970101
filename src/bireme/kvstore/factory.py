"""Makes stores by name: the built-in ones, and plug-ins from the registry."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, overload

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.kvstore.device import DeviceStore
from bireme.kvstore.dist.launched import Launched
from bireme.kvstore.dist.options import DIST_TYPES
from bireme.kvstore.local import LocalStore
from bireme.kvstore.peers import ALLREDUCE_TYPES, Peers
from bireme.kvstore.registry import BUILT_IN, PLUGINS, is_coming

__all__ = ("create", "run_role")

_BuiltIn: TypeAlias = Literal[
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
]

_CLASSES: Mapping[str, type[LocalStore] | type[DeviceStore]] = {
    "local": LocalStore,
    "local_update_cpu": LocalStore,
    "local_allreduce_cpu": LocalStore,
    "device": DeviceStore,
    "local_allreduce_device": DeviceStore,
    "nccl": DeviceStore,
}

# A process has one place in the job that it was launched for.
_LAUNCHED = Launched()
_PEERS = Peers()


@overload
def create(name: _BuiltIn | None = None, **options: object) -> KVStore: ...


@overload
def create(name: str | None = None, **options: object) -> KVStoreBase: ...


def create(name: str | None = None, **options: object) -> KVStoreBase:
    """Return a new store.

    A ``dist`` store takes its place in the job from the launcher's environment (``bireme run``).
    Started by plain ``python``, it runs a whole job inside the process: one worker, one server.
    In a process that was launched as server or scheduler, it serves until the job ends and then
    leaves by ``SystemExit``, so that one script serves all roles.

    An ``allreduce`` store takes its rank from any launcher's environment (``bireme run -np``,
    ``torchrun``, ``mpirun``, ``srun``, ``horovodrun``); without one it is alone.

    Args:
        name: Its type, in any case: ``local`` (also ``local_update_cpu``,
            ``local_allreduce_cpu``), ``device`` (also ``local_allreduce_device``, ``nccl``),
            ``dist_sync`` (also ``dist``), ``dist_async``, ``dist_bounded``, ``dist_local``,
            their ``_device`` forms, ``allreduce`` (also ``horovod``), or that of a registered
            plug-in. ``None`` takes
            ``BIREME_KVSTORE``, else ``local``.
        options: ``staleness`` of a ``dist_bounded`` store: how many rounds a worker may be ahead
            of the slowest, >= 0; by default the job's (``BIREME_STALENESS``, else 2).
            ``delay_compensation`` of ``dist_async`` and ``dist_bounded``: the factor of DC-ASGD,
            such as 0.04; off by default. ``local`` of ``dist_local``: a
            :class:`bireme.LocalSteps`. A plug-in's constructor gets all of them.

    Raises:
        ConfigError: The type or an option is unknown.
        UnsupportedError: The type comes in a later version.
        JobError: A ``dist`` store's job did not come together within its limit.
        SystemExit: The process is a server or scheduler, and the job has ended.

    Example:
        >>> create("local_allreduce_cpu").type
        'local_allreduce_cpu'
    """
    if name is None:
        name = os.environ.get("BIREME_KVSTORE") or "local"
    if not isinstance(name, str):
        raise ConfigError(f"a store type must be a string, got {name!r:.60}")
    kind = name.lower()
    plugin = PLUGINS.get(kind)
    if plugin is not None:
        return _made(plugin, kind, options)
    if kind in DIST_TYPES:
        return _LAUNCHED.create(kind, os.environ, options)
    if kind in ALLREDUCE_TYPES:
        return _PEERS.create(kind, os.environ, options)
    if options and kind in BUILT_IN:
        raise ConfigError(f"a {kind!r} store takes no options, got {', '.join(options)}")
    if kind in _CLASSES:
        _LAUNCHED.tell_if_idle(kind, os.environ)
        return _CLASSES[kind](kind)
    valid = ", ".join([*BUILT_IN, *PLUGINS.names()])
    if is_coming(kind):
        raise UnsupportedError(
            f"store type {name!r} comes in a later version; these work now: {valid}"
        )
    raise ConfigError(f"unknown store type {name!r}; valid types are {valid}")


def run_role() -> None:
    """Serve until the job ends if this process was launched as server or scheduler, and leave.

    Returns at once in a worker and without a launcher. Call it before work that only workers
    need to do; ``create`` of a ``dist`` store does the same by itself.

    Raises:
        SystemExit: The job has ended.
    """
    _LAUNCHED.serve(os.environ)


def _made(
    plugin: Callable[..., KVStoreBase], name: str, options: Mapping[str, object]
) -> KVStoreBase:
    try:
        inspect.signature(plugin).bind(**options)
    except TypeError as error:
        raise ConfigError(f"store type {name!r}: {error}") from error
    return plugin(**options)
