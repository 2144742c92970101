import pytest
import torch

import bireme
from bireme import kvstore
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore import KVStoreBase

COMING = ("byteps",)
DIST = (
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
)


class TestStore(KVStoreBase):
    """The least plug-in: sums what it is given and keeps nothing."""

    __test__ = False

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    type = "teststore"
    rank = 0
    num_workers = 1

    def broadcast(self, key, value, out, priority=0):
        for each in out if isinstance(out, list) else [out]:
            each.copy_(value)

    def pushpull(self, key, value, out=None, priority=0):
        total = sum(value) * self.factor
        for each in value if out is None else out:
            each.copy_(total)


@pytest.fixture
def plugin():
    # Defined again by every test, as in a notebook, which must not be an error.
    return kvstore.register(type("TestStore", (TestStore,), {"__qualname__": "Again"}))


def test_names_are_lower_cased_and_kept():
    assert kvstore.create("Local_Update_CPU").type == "local_update_cpu"
    assert kvstore.create().type == "local"


def test_kv_is_the_same_module():
    assert bireme.kv is bireme.kvstore is kvstore


@pytest.mark.parametrize("name", ["foo", "", "dist2", "distance", "local device"])
def test_unknown_type_lists_the_valid_ones(name):
    with pytest.raises(ConfigError, match=r"valid types are local, .*device") as caught:
        kvstore.create(name)
    assert not isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize("name", COMING)
def test_types_of_a_later_version_say_what_works_now(name):
    with pytest.raises(UnsupportedError, match=r"later version.*local.*device.*dist_sync"):
        kvstore.create(name.upper())


@pytest.mark.parametrize("name", DIST)
def test_without_a_launcher_a_dist_store_runs_a_job_of_its_own(name):
    with kvstore.create(name.upper()) as store:
        assert (store.type, store.rank, store.num_workers) == (name, 0, 1)


def test_the_environment_names_the_default(monkeypatch):
    monkeypatch.setenv("BIREME_KVSTORE", "device")
    assert kvstore.create().type == "device"
    assert kvstore.create("local").type == "local"


def test_run_role_returns_where_nothing_was_launched():
    kvstore.run_role()


@pytest.mark.parametrize("name", [3, b"local", ["local"]])
def test_name_must_be_a_string(name):
    with pytest.raises(ConfigError, match="string"):
        kvstore.create(name)


def test_built_in_stores_take_no_options():
    with pytest.raises(ConfigError, match="num_threads"):
        kvstore.create("local", num_threads=2)


def test_plugin(plugin):
    store = kvstore.create("TestStore", factor=2.0)
    values = [torch.ones(2), torch.ones(2)]
    store.pushpull(1, values)
    assert all(value.tolist() == [4, 4] for value in values)
    out = [torch.empty(2), torch.empty(2)]
    store.broadcast(1, torch.ones(2), out)
    assert out[1].tolist() == [1, 1]
    assert store.is_capable("optimizer") is False
    for call in (
        lambda: store.set_optimizer(kvstore.OptimizerSpec("sgd")),
        lambda: store.save_optimizer_states("x"),
        lambda: store.load_optimizer_states("x"),
    ):
        with pytest.raises(NotImplementedError, match="teststore"):
            call()


def test_plugin_is_listed_among_the_valid_types(plugin):
    with pytest.raises(ConfigError, match="teststore"):
        kvstore.create("foo")


def test_plugins_options_are_checked(plugin):
    with pytest.raises(ConfigError, match="colour"):
        kvstore.create("teststore", colour="red")


def test_register_is_also_a_method_of_the_base(plugin):
    again = type("TestStore", (TestStore,), {"__qualname__": "Again"})
    assert KVStoreBase.register(again) is again
    assert isinstance(kvstore.create("teststore"), again)
