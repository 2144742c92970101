import pytest
import torch
from tests.integration.jobs import run_threads

from bireme import OptimizerSpec
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.tables import TableOptions

IDS = torch.tensor([1, 2])


def test_tables_of_all_stores_are_apart():
    def work(session):
        changes = []
        with session.store("dist_sync") as one, session.store("dist_async") as two:
            made = [
                store.table(TableOptions(name, 2, init="zeros"))
                for store in (one, two)
                for name in ("a", "b")
            ]
            for number, table in enumerate(made):
                table.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0 + number}))
                table.push(IDS, torch.ones(2, 2))
                table.flush()
            one.barrier()
            changes = [table.pull(IDS)[0, 0].item() for table in made]
            assert (len(one.tables), len(two.tables)) == (2, 2)
        return changes

    # Two workers: the mean of their gradients in rounds, each one by itself without.
    assert run_threads(2, 2, work) == [[-1, -2, -6, -8]] * 2


def test_a_name_is_taken_once_and_local_steps_have_no_tables():
    def work(session):
        with session.store("dist_sync") as store:
            store.table(TableOptions("a", 2))
            with pytest.raises(ConfigError, match="'a' already"):
                store.table(TableOptions("a", 2))
            assert len(store.tables) == 1

    run_threads(1, 1, work)


def test_a_store_of_local_steps_refuses_tables():
    import bireme

    with bireme.kvstore.create("dist_local") as store:
        with pytest.raises(UnsupportedError, match="of its own"):
            store.table(TableOptions("a", 2))
