import copy

import pytest
import torch
from tests.update import custom
from torch import nn

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore import DeviceStore, LocalStore
from bireme.train.arrange import Wish, arrange
from bireme.train.lineup import Lineup
from bireme.train.plain_update import PlainUpdate
from bireme.train.store_update import StoreUpdate
from bireme.train.worker_update import WorkerUpdate

TWO_BIT = {"type": "2bit", "threshold": 0.5}


def decide(count, kvstore, compression=None, on_store=None):
    net = nn.Linear(1, 1)
    lineup = Lineup([copy.deepcopy(net) for _ in range(count)])
    optimizer = torch.optim.SGD(lineup.params[0])
    return arrange(lineup, optimizer, Wish(kvstore, compression, on_store))


@pytest.mark.parametrize(
    ("count", "kvstore", "compression", "on_store", "mode", "kind"),
    [
        (1, "device", None, None, PlainUpdate, None),
        (1, "local", None, False, PlainUpdate, None),
        (1, "device", None, True, StoreUpdate, "device"),
        (1, "device", TWO_BIT, None, WorkerUpdate, "device"),
        (1, "device", TWO_BIT, True, StoreUpdate, "device"),
        (1, None, None, None, PlainUpdate, None),
        (1, None, None, False, PlainUpdate, None),
        (2, "local", None, None, WorkerUpdate, "local"),
        (2, "DEVICE", None, False, WorkerUpdate, "device"),
        (2, "local", None, True, StoreUpdate, "local"),
    ],
)
def test_the_table(count, kvstore, compression, on_store, mode, kind):
    chosen, store = decide(count, kvstore, compression, on_store)
    assert type(chosen) is mode
    assert (None if store is None else store.type) == kind


@pytest.mark.parametrize(
    ("kvstore", "on_store", "mode"),
    [
        ("dist_sync", None, StoreUpdate),
        ("dist_sync", True, StoreUpdate),
        ("dist_sync", False, WorkerUpdate),
        ("dist_sync_device", None, StoreUpdate),
        ("dist_async", None, StoreUpdate),
        ("dist_async", True, StoreUpdate),
    ],
)
def test_stores_on_servers(kvstore, on_store, mode):
    chosen, store = decide(1, kvstore, None, on_store)
    with store:
        assert type(chosen) is mode
        assert store.type == kvstore


def test_what_servers_cannot_do():
    net = nn.Linear(1, 1)
    lineup, lbfgs = Lineup([net]), torch.optim.LBFGS(net.parameters())
    chosen, store = arrange(lineup, lbfgs, Wish("dist_sync", None, None))
    with store:
        assert type(chosen) is WorkerUpdate
    for kvstore, on_store in (("dist_sync", True), ("dist_async", None)):
        with pytest.raises(UnsupportedError, match="closure"):
            arrange(lineup, lbfgs, Wish(kvstore, None, on_store))
    with pytest.raises(ConfigError, match="update_on_kvstore=False is not possible"):
        decide(1, "dist_async", None, False)


def test_a_store_object_is_always_used():
    store = LocalStore()
    chosen, used = decide(1, store)
    assert type(chosen) is WorkerUpdate
    assert used is store


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((2, None), ConfigError, "2 replicas need a store"),
        ((1, None, TWO_BIT), ConfigError, "compression needs a store"),
        ((1, None, None, True), ConfigError, "update_on_kvstore=True needs a store"),
        ((2, "local", TWO_BIT), UnsupportedError, "does not compress"),
        ((2, "device", None, 1), ConfigError, "True, False or None, got 1"),
        ((2, 5), ConfigError, "got 5"),
    ],
)
def test_wishes_that_cannot_be_granted(arguments, error, message):
    with pytest.raises(error, match=message):
        decide(*arguments)


def test_a_refused_store_keeps_its_owner():
    store = DeviceStore()
    with pytest.raises(ConfigError):
        decide(2, store, {"type": "nonsense"})
    store.init("still-open", torch.ones(1))


def test_servers_run_a_class_by_import_path_only_when_asked():
    net = nn.Linear(1, 1)
    optimizer = custom.Lion(net.parameters())
    for wanted, kind in ((None, WorkerUpdate), (False, WorkerUpdate)):
        mode, store = arrange(Lineup(net), optimizer, Wish("dist_sync", None, wanted))
        assert isinstance(mode, kind)
        store.close()
    for name, wanted in (("dist_sync", True), ("dist_async", None)):
        with pytest.raises(ConfigError, match="--allow-optimizer"):
            arrange(Lineup(net), optimizer, Wish(name, None, wanted))
    mode, _ = arrange(Lineup(net), optimizer, Wish("local", None, True))
    assert isinstance(mode, StoreUpdate)
