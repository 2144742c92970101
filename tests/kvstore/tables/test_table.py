import pytest
import torch
from tests.integration.jobs import run_threads

from bireme import OptimizerSpec
from bireme.errors import ConfigError, StateError, UnsupportedError, WaitTimeout
from bireme.kvstore.dist.options import DistOptions
from bireme.kvstore.tables import TableOptions

SGD = OptimizerSpec("sgd", {"lr": 1.0})
IDS = torch.tensor([5, -7, 10**15, 5, 2**63 - 1])


def options(**change):
    return TableOptions(**{"name": "t", "dim": 2, "dtype": torch.float64, **change})


def initial(ids, num_servers=1, **change):
    def work(session):
        with session.store("dist_sync") as store:
            return store.table(options(**change)).pull(ids)

    return run_threads(1, num_servers, work)[0]


def test_rows_do_not_depend_on_servers_order_or_worker():
    def work(session):
        with session.store("dist_sync") as store:
            store.table(TableOptions("another", 3))
            ids = IDS if store.rank else IDS.flip(0)
            rows = store.table(options()).pull(ids)
            return rows if store.rank else rows.flip(0)

    expected = initial(IDS)
    for rows in run_threads(2, 3, work):
        assert torch.equal(rows, expected)
    assert not torch.equal(initial(IDS, seed=1), expected)
    assert not torch.equal(initial(IDS, name="u"), expected)


@pytest.mark.parametrize(("num_workers", "num_servers"), [(1, 1), (2, 3), (3, 2)])
def test_a_round_is_the_weighted_mean_of_all_workers(num_workers, num_servers):
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options())
            table.set_optimizer(SGD)
            before = table.pull(IDS)
            weight = float(store.rank + 1)
            for _ in range(3):
                # Rank 0 has no rows at all.
                ids = IDS if store.rank else IDS[:0]
                table.push(ids, torch.ones(len(ids), 2).double(), weight)
            return before - table.pull(IDS)

    share = 1 - 1 / (num_workers * (num_workers + 1) / 2)
    expected = 3 * share * torch.tensor([2.0, 1, 1, 2, 1]).double()
    for change in run_threads(num_workers, num_servers, work):
        torch.testing.assert_close(change[:, 0], expected)


def test_asynchronous_pushes_are_applied_when_they_come():
    def work(session):
        with session.store("dist_async") as store:
            table = store.table(options())
            table.set_optimizer(SGD)
            before = table.pull(IDS)
            # Everyone has read before the first push.
            store.barrier()
            if store.rank == 0:
                for _ in range(4):
                    table.push(IDS[:1], torch.ones(1, 2).double(), 8.0)
                assert (before - table.pull(IDS))[0, 0] == pytest.approx(4)
            store.barrier()
            table.push(IDS[:1], torch.ones(1, 2).double())
            table.flush()
            store.barrier()
            return (before - table.pull(IDS))[0, 0].item()

    assert run_threads(2, 2, work) == [pytest.approx(6), pytest.approx(6)]


def test_workers_may_be_apart_in_a_bounded_store():
    def work(session):
        with session.store("dist_bounded", DistOptions(staleness=2)) as store:
            table = store.table(options(init="zeros"))
            table.set_optimizer(SGD)
            for _ in range(6):
                table.push(IDS[:1], torch.ones(1, 2).double())
                table.pull(IDS)
            table.flush()
            store.barrier()
            return table.pull(IDS)[0, 0].item()

    assert run_threads(2, 2, work) == [-12, -12]


def test_workers_that_declare_different_tables_all_hear_of_it():
    def work(session):
        with session.store("dist_sync") as store:
            with pytest.raises(ConfigError, match=r"another one on W\[1\]"):
                store.table(options(seed=store.rank))
            with pytest.raises(ConfigError, match=r"another one on W\[1\]"):
                store.table(options(dim=2 + store.rank))

    run_threads(2, 1, work)


def test_wrong_calls_change_nothing():
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options(num_rows=10))
            ones = torch.ones(1, 2).double()
            with pytest.raises(StateError, match="no optimizer"):
                table.push(torch.tensor([1]), ones)
            with pytest.raises(UnsupportedError, match="whole matrix"):
                table.set_optimizer(OptimizerSpec("adafactor"))
            with pytest.raises(UnsupportedError, match="lr_mult"):
                table.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}, lr_mult={"t": 2.0}))
            table.set_optimizer(SGD)
            before = table.pull(torch.arange(10))
            for ids, grads, weight, text in (
                (torch.tensor([1], dtype=torch.int32), ones, 1.0, "int64"),
                (torch.tensor([1]), ones.float(), 1.0, "float32"),
                (torch.tensor([1]), ones, -1.0, "weight"),
            ):
                with pytest.raises(ConfigError, match=text):
                    table.push(ids, grads, weight)
            assert torch.equal(table.pull(torch.arange(10)), before)
            with pytest.raises(ConfigError, match="'t' already"):
                store.table(options())
        with pytest.raises(StateError, match="closed"):
            table.pull(torch.tensor([1]))

    run_threads(1, 2, work)


def test_numbers_change_for_all_and_keep_the_state():
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options(init="zeros"))
            one, ids = torch.ones(1, 2).double(), torch.tensor([3])
            for lr in (1.0, 0.0, 1.0):
                table.set_optimizer(OptimizerSpec("sgd", {"lr": lr, "momentum": 0.5}))
                table.push(ids, one)
            return table.pull(ids)[0, 0].item()

    assert run_threads(3, 2, work) == [-2.75] * 3


def test_counters_and_limits():
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options(max_rows=64, eviction="lru"))
            table.set_optimizer(SGD)
            for begin in range(0, 300, 10):
                table.push(torch.arange(begin, begin + 10), torch.ones(10, 2).double())
            table.flush()
            stats = table.stats()
            assert 50 <= stats["rows"] <= 64
            assert stats["evictions"] == 300 - stats["rows"]
            assert stats["max_rows"] == 64
            assert sum(each["rows"] for each in stats["servers"]) == stats["rows"]
            full = store.table(options(name="full", max_rows=8))
            full.set_optimizer(SGD)
            full.push(torch.arange(50), torch.ones(50, 2).double())
            with pytest.raises(StateError, match="raise max_rows"):
                full.flush()

    run_threads(1, 2, work)


def test_rows_of_the_next_step_come_when_it_is_done():
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options(init="zeros"))
            table.set_optimizer(SGD)
            ids = torch.tensor([3, 4])
            batch = table.begin(ids, ahead=1)
            store.barrier()
            table.push(ids[:1], torch.ones(1, 2).double())
            rows = table.wait(batch)
            return rows[torch.from_numpy(batch.deal.inverse), 0].tolist()

    assert run_threads(2, 2, work) == [[-1, 0]] * 2


def test_a_wait_for_a_step_that_never_comes_ends_and_says_so():
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options())
            with pytest.raises(WaitTimeout):
                table.wait(table.begin(torch.tensor([3]), ahead=1))

    run_threads(1, 1, work, pull_timeout_s=0.3)


def test_large_batches_and_no_batches():
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options(dim=64, init="zeros"))
            table.set_optimizer(SGD)
            ids = torch.arange(40_000)
            table.push(ids, torch.ones(40_000, 64).double())
            assert (table.pull(ids) == -1).all()
            assert table.pull(ids[:0]).shape == (0, 64)

    run_threads(1, 2, work)
