import pytest

from bireme.errors import ConfigError
from bireme.kvstore import KVStoreBase
from bireme.kvstore.dist.options import DIST_TYPES
from bireme.kvstore.factory import _CLASSES
from bireme.kvstore.peers import ALLREDUCE_TYPES
from bireme.kvstore.registry import BUILT_IN, Registry, is_coming


class Plain(KVStoreBase):
    type = "plain"
    rank = 0
    num_workers = 1

    def broadcast(self, key, value, out, priority=0):
        raise AssertionError

    def pushpull(self, key, value, out=None, priority=0):
        raise AssertionError


def test_reserved_names_are_the_ones_that_create_serves():
    assert set(BUILT_IN) == {*_CLASSES, *DIST_TYPES, *ALLREDUCE_TYPES}


@pytest.mark.parametrize(
    ("name", "coming"),
    [("allreduce", False), ("byteps", True), ("dist_bounded", False), ("dist_sync", False)],
)
def test_is_coming(name, coming):
    assert is_coming(name) is coming


class TestRegistry:
    def test_name_belongs_to_one_class(self):
        registry = Registry()
        first = type("Mine", (Plain,), {"__qualname__": "a.Mine"})
        other = type("mine", (Plain,), {"__qualname__": "b.mine"})
        registry.add(first)
        with pytest.raises(ConfigError, match=r"already registered.*a\.Mine"):
            registry.add(other)
        assert registry.get("mine") is first
        assert registry.names() == ["mine"]

    def test_same_qualified_name_replaces(self):
        registry = Registry()
        first, again = (type("Mine", (Plain,), {"__qualname__": "a.Mine"}) for _ in range(2))
        registry.add(first)
        registry.add(again)
        assert registry.get("mine") is again

    @pytest.mark.parametrize("name", ["Local", "nccl", "Dist", "dist_sync", "Horovod"])
    def test_built_in_names_are_taken(self, name):
        with pytest.raises(ConfigError, match="built-in"):
            Registry().add(type(name, (Plain,), {}))

    @pytest.mark.parametrize("thing", [int, 3, Plain()])
    def test_only_store_classes(self, thing):
        with pytest.raises(ConfigError, match="subclass of KVStoreBase"):
            Registry().add(thing)

    def test_two_registries_share_nothing(self):
        first = Registry()
        first.add(type("Mine", (Plain,), {}))
        assert Registry().get("mine") is None
