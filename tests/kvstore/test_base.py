import pytest

from bireme.errors import ConfigError
from bireme.kvstore import KVStore, KVStoreBase


class Plain(KVStoreBase):
    type = "plain"
    rank = 0
    num_workers = 1

    def broadcast(self, key, value, out, priority=0):
        raise AssertionError

    def pushpull(self, key, value, out=None, priority=0):
        raise AssertionError


def test_the_least_plug_in():
    store = Plain()
    assert store.is_capable("Optimizer") is False
    assert KVStoreBase.OPTIMIZER == "optimizer"
    for unknown in ("speed", None):
        with pytest.raises(ConfigError, match="capability"):
            store.is_capable(unknown)
    for call in (store.set_optimizer, store.save_optimizer_states, store.load_optimizer_states):
        with pytest.raises(NotImplementedError, match="plain"):
            call(None)


@pytest.mark.parametrize("cls", [KVStoreBase, KVStore])
def test_interfaces_cannot_be_made(cls):
    with pytest.raises(TypeError, match="abstract"):
        cls()
