import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import ConfigError, StateError, UnknownKeyError


def test_rows_that_are_cut_are_no_rows_to_the_servers():
    def work(session):
        with session.store("dist_sync") as store:
            value = torch.randn(5, 40)
            store.init(0, value)
            assert torch.equal(store.pull(0), value)
            assert len({span.server for span in store._directory.all()[0].spans}) == 3

    run_threads(1, 3, work, slice_bytes=64)


@pytest.mark.parametrize("key", ["x" * 5000, "\ud800", 2**80])
def test_keys_that_no_message_can_carry(key):
    def work(session):
        with session.store("dist_sync") as store:
            with pytest.raises(ConfigError, match="cannot be sent"):
                store.init(key, torch.zeros(2))
            store.barrier()

    run_threads(1, 1, work)


def test_a_call_that_fails_adds_nothing():
    def work(session):
        with session.store("dist_sync") as store:
            store.init("a", torch.zeros(2))
            with pytest.raises(StateError, match="already"):
                store.init(["b", "a"], [torch.zeros(2)] * 2)
            with pytest.raises(ConfigError, match="integer"):
                store.init(3, torch.zeros(2))
            with pytest.raises(UnknownKeyError):
                store.pull("b")
            store.init("b", torch.ones(3))
            assert store.pull("b").tolist() == [1, 1, 1]

    run_threads(1, 1, work)
