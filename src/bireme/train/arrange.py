"""Decides whether a trainer uses a store, and where its optimizer runs.

========================================  =========  ==================================
replicas, store, compression              store      optimizer
========================================  =========  ==================================
one replica, name of a one-process store  none       here, untouched
the same, with compression                used       here
the same, ``update_on_kvstore=True``      used       in the store
one replica, a store object or a plug-in  used       here, or in the store when asked
several replicas                          used       here, or in the store when asked
any, ``kvstore=None``                     none       here; an error with several replicas
any, a synchronous store on servers       used       on the servers, or here when asked
any, ``dist_async`` or ``dist_bounded``   used       on the servers; elsewhere is an error
any, ``dist_local``                       used       here; the outer one on the servers
========================================  =========  ==================================

In one process the optimizer runs here unless asked otherwise, because it is the caller's own
object: clipping between merge and update, closures, hooks and ``state_dict`` then work as in plain
torch. On servers it runs once for all workers. An optimizer that no server can run (LBFGS), or that
servers run only where the job allows it (a class that is not of ``torch.optim``), runs here over a
synchronous store unless asked otherwise.
"""

from collections.abc import Mapping
from typing import TypeAlias

import torch

from bireme import kvstore as kvstores
from bireme.compress.base import Compressor
from bireme.consistency.local import LocalSteps
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.train.exchange import Exchange
from bireme.train.lineup import Lineup
from bireme.train.local_update import LocalUpdate, outer_optimizer
from bireme.train.mode import Mode
from bireme.train.optimizers import params_of
from bireme.train.overlapped_store import OverlappedStoreUpdate
from bireme.train.overlapped_worker import OverlappedWorkerUpdate
from bireme.train.plain_update import PlainUpdate
from bireme.train.store_update import StoreUpdate, check_runs_in_store, detach
from bireme.train.worker_update import WorkerUpdate
from bireme.update.classes import is_of_torch, name_of

__all__ = ("Compression", "Wish", "arrange")

Compression: TypeAlias = Mapping[str, object] | Compressor | None
"""Arguments of :func:`bireme.compress.create`, a compressor, or none."""


class Wish:
    """What the caller of a trainer asked of the store.

    Args:
        kvstore: Name of a type, a store, or ``None``.
        compression: How gradients are compressed, if at all.
        update_on_kvstore: Where the optimizer runs; ``None`` leaves it to the trainer.
        options: For the store, where it is made by its type.
        overlap: Whether gradients leave during the backward pass.

    Raises:
        ConfigError: An argument is of the wrong type, or they contradict each other.
    """

    def __init__(
        self,
        kvstore: str | KVStoreBase | None,
        compression: Compression,
        update_on_kvstore: bool | None,
        options: Mapping[str, object] | None = None,
        *,
        overlap: bool = False,
    ) -> None:
        if kvstore is not None and not isinstance(kvstore, str | KVStoreBase):
            raise ConfigError(
                f"kvstore must be a type such as 'device', a store or None, got {kvstore!r:.60}"
            )
        if update_on_kvstore is not None and not isinstance(update_on_kvstore, bool):
            raise ConfigError(
                f"update_on_kvstore must be True, False or None, got {update_on_kvstore!r:.60}"
            )
        if kvstore is None and (compression is not None or update_on_kvstore):
            what = "compression" if compression is not None else "update_on_kvstore=True"
            raise ConfigError(f"{what} needs a store; leave out kvstore=None")
        if not isinstance(overlap, bool):
            raise ConfigError(f"overlap must be True or False, got {overlap!r:.60}")
        if kvstore is None and overlap:
            raise ConfigError("overlap=True needs a store on servers, such as 'dist_sync'")
        self.overlap = overlap
        self.kvstore = kvstore
        self.compression = compression
        if options and not isinstance(kvstore, str):
            raise ConfigError(
                f"{', '.join(options)} is for a store that the trainer makes by its type; give it "
                "to bireme.kvstore.create"
            )
        self.update_on_kvstore = update_on_kvstore
        self.options = dict(options or {})

    @property
    def needs_store(self) -> bool:
        """Whether even a single replica must go through a store."""
        return self.compression is not None or bool(self.update_on_kvstore)


def arrange(
    lineup: Lineup, optimizer: torch.optim.Optimizer, wish: Wish
) -> tuple[Mode, KVStoreBase | None]:
    """Return how the trainer works, and the store it uses.

    Args:
        lineup: The replicas.
        optimizer: The optimizer, over parameters of replica 0.
        wish: What the caller asked for.

    Raises:
        ConfigError: The wish cannot be granted.
    """
    if wish.kvstore is None:
        if len(lineup) > 1:
            raise ConfigError(
                f"{len(lineup)} replicas need a store to merge their gradients; use "
                f"kvstore='device'"
            )
        detach(optimizer)
        return PlainUpdate(optimizer), None
    if not isinstance(wish.kvstore, str):
        _check_overlap(wish, wish.kvstore)
        return _with_store(lineup, optimizer, wish, wish.kvstore), wish.kvstore
    store = kvstores.create(wish.kvstore, **wish.options)
    try:
        _check_overlap(wish, store)
        if len(lineup) == 1 and not wish.needs_store and _is_one_process(store):
            _close(store)
            detach(optimizer)
            return PlainUpdate(optimizer), None
        return _with_store(lineup, optimizer, wish, store), store
    except BaseException:
        _close(store)
        raise


def _with_store(
    lineup: Lineup, optimizer: torch.optim.Optimizer, wish: Wish, store: KVStoreBase
) -> Mode:
    if wish.compression is not None and not isinstance(store, KVStore):
        raise UnsupportedError(f"a {store.type!r} store does not compress; use 'device'")
    if isinstance(store, KVStore) and store.local_steps is not None:
        return _locally(lineup, optimizer, wish, store, store.local_steps)
    on_store = _updates_on_store(optimizer, store, wish.update_on_kvstore)
    exchange = Exchange(lineup, store)
    if on_store:
        on_servers = OverlappedStoreUpdate if wish.overlap else StoreUpdate
        mode: Mode = on_servers(optimizer, exchange)
        # Before there are keys: those of some optimizers must not be cut over servers.
        mode.refresh(lineup.positions(params_of(optimizer)))
    else:
        here = OverlappedWorkerUpdate if wish.overlap else WorkerUpdate
        mode = here(optimizer, exchange, compressed=wish.compression is not None)
        exchange.expect_sums()
    if isinstance(store, KVStore) and wish.compression is not None:
        store.set_gradient_compression(wish.compression)
    exchange.introduce()
    detach(optimizer)
    if isinstance(mode, StoreUpdate):
        mode.attach()
    return mode


def _locally(
    lineup: Lineup,
    optimizer: torch.optim.Optimizer,
    wish: Wish,
    store: KVStore,
    steps: LocalSteps,
) -> Mode:
    if wish.update_on_kvstore:
        raise ConfigError(
            f"a {store.type!r} store runs the outer optimizer on its servers and the one that is "
            "given here; leave update_on_kvstore out"
        )
    if wish.overlap:
        raise ConfigError(
            "overlap=True overlaps the exchange of every step, and local steps have few; let "
            "LocalSteps(fragments=..., delay=...) overlap theirs"
        )
    exchange = Exchange(lineup, store)
    if exchange.number:
        raise ConfigError(
            "this store serves another trainer already, and local steps need a store of their own"
        )
    store.set_optimizer(outer_optimizer(steps))
    if wish.compression is not None:
        store.set_gradient_compression(wish.compression)
    exchange.introduce()
    detach(optimizer)
    if len(lineup) == 1:
        inner: Mode = PlainUpdate(optimizer)
    else:
        kind = "device" if store.type.endswith("_device") else "local"
        here = Exchange(lineup, kvstores.create(kind))
        inner = WorkerUpdate(optimizer, here, compressed=False)
    return LocalUpdate(inner, exchange, steps)


def _updates_on_store(
    optimizer: torch.optim.Optimizer, store: KVStoreBase, wanted: bool | None
) -> bool:
    """Decide where the optimizer runs.

    Raises:
        ConfigError: The store cannot run it there.
        UnsupportedError: The optimizer cannot run in a store.
    """
    if isinstance(store, KVStore) and not store.meets_in_rounds:
        if wanted is False:
            raise ConfigError(
                f"a {store.type!r} store applies each push by an optimizer on its servers, so "
                "update_on_kvstore=False is not possible; use 'dist_sync'"
            )
        wanted = True
    if wanted:
        check_runs_in_store(optimizer, store)
    if wanted is not None or not (isinstance(store, KVStore) and store.updates_elsewhere):
        return bool(wanted)
    try:
        check_runs_in_store(optimizer, store)
        return is_of_torch(name_of(type(optimizer)))
    except UnsupportedError:
        return False


def _check_overlap(wish: Wish, store: KVStoreBase) -> None:
    if wish.overlap and not (isinstance(store, KVStore) and store.spans_processes):
        raise ConfigError(
            f"overlap=True needs a store on servers, such as 'dist_sync'; a {store.type!r} store "
            "merges at once, and there is nothing to wait for"
        )


def _is_one_process(store: KVStoreBase) -> bool:
    return isinstance(store, KVStore) and not store.spans_processes


def _close(store: KVStoreBase) -> None:
    if isinstance(store, KVStore):
        store.close()
