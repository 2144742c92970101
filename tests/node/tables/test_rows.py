import numpy as np
import pytest
import torch
from tests.node.tables.samples import contribution

from bireme.errors import ConfigError
from bireme.node.tables.initial import first_rows
from bireme.node.tables.partial import TablePartial
from bireme.node.tables.rows import TableRows
from bireme.types.choices import Eviction
from bireme.types.dtypes import DType
from bireme.update import OptimizerSpec
from bireme.update.rowwise import RowOptimizer
from bireme.wire.tables import TableSpec

SPEC = TableSpec(dim=3, dtype=DType.FLOAT64, seed=4)


def made(optimizer="adam", **fields):
    spec = TableSpec(**{name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | fields)
    rows = TableRows(spec)
    runner = RowOptimizer(OptimizerSpec(optimizer, {"lr": 0.1}), spec.dim, torch.float64)
    rows.use(runner, keep_state=False)
    return rows, runner


def update(rows, runner, ids, version, value=1.0):
    grads = torch.full((len(ids), rows.spec.dim), value, dtype=torch.float64)
    entry, payload, offset = contribution(ids, grads)
    total = TablePartial.of(entry, payload, offset, 1.0, rows.spec.dim, torch.float64)
    rows.update(total, runner, version)


def test_rows_that_were_never_updated_take_no_memory():
    rows, runner = made()
    before = rows.nbytes
    ids = np.arange(1000)
    assert np.array_equal(rows.read(ids), first_rows(rows.spec, ids))
    assert (len(rows), rows.nbytes) == (0, before)
    update(rows, runner, [1, 500], 1)
    assert len(rows) == 2
    changed = (rows.read(ids) != first_rows(rows.spec, ids)).any(1)
    assert np.flatnonzero(changed).tolist() == [1, 500]


def test_every_row_counts_its_own_steps():
    rows, runner = made()
    for version, ids in enumerate(([1, 2], [2], [2, 3], [4]), 1):
        update(rows, runner, ids, version)
    expected = {}
    for row, steps in ((1, 1), (2, 3), (3, 1), (4, 1)):
        value = torch.from_numpy(first_rows(rows.spec, np.array([row])))
        alone = torch.optim.Adam([value], lr=0.1)
        for _ in range(steps):
            value.grad = torch.ones_like(value)
            alone.step()
        expected[row] = value[0]
    for row, value in expected.items():
        found = torch.from_numpy(rows.read(np.array([row])))[0]
        torch.testing.assert_close(found, value, rtol=1e-12, atol=1e-12)


def test_an_update_that_fails_changes_nothing():
    rows, runner = made()
    update(rows, runner, [1], 1)
    before = rows.read(np.array([1, 2]))

    class Broken:
        spec, tensors, numbers = runner.spec, runner.tensors, runner.numbers

        def step(self, values, grads, state):
            values.zero_()
            state.tensors["exp_avg"].zero_()
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        update(rows, Broken(), [1, 2], 2)
    assert np.array_equal(rows.read(np.array([1, 2])), before)
    assert len(rows) == 1


def test_the_rows_updated_the_longest_ago_go_first():
    rows, runner = made(max_rows=10, eviction=Eviction.LRU)
    for version in range(1, 11):
        update(rows, runner, [version], version)
    update(rows, runner, [1], 11)
    update(rows, runner, [100, 101], 12)
    assert sorted(rows.index.ids.tolist()) == [1, 4, 5, 6, 7, 8, 9, 10, 100, 101]
    assert rows.num_evicted == 2
    assert np.array_equal(rows.read(np.array([2])), first_rows(rows.spec, np.array([2])))
    update(rows, runner, [2], 13)
    alone, other = made()
    update(alone, other, [2], 1)
    assert np.array_equal(rows.read(np.array([2])), alone.read(np.array([2])))


def test_the_rows_updated_most_seldom_go_first():
    rows, runner = made(max_rows=4, eviction=Eviction.LFU)
    version = 0
    for row, times in ((1, 3), (2, 1), (3, 2), (4, 5)):
        for _ in range(times):
            version += 1
            update(rows, runner, [row], version)
    update(rows, runner, [9], version + 1)
    assert sorted(rows.index.ids.tolist()) == [1, 3, 4, 9]
    update(rows, runner, [8], version + 2)
    assert sorted(rows.index.ids.tolist()) == [1, 3, 4, 8]


def test_which_rows_go_does_not_depend_on_the_order_of_arrival():
    kept = []
    for order in (range(40), reversed(range(40))):
        rows, runner = made(max_rows=16, eviction=Eviction.LRU)
        update(rows, runner, list(order), 1)
        kept.append(sorted(rows.index.ids.tolist()))
    assert kept[0] == kept[1]
    assert len(kept[0]) == 16


def test_what_is_left_after_an_eviction_is_untouched():
    rows, runner = made(max_rows=640, eviction=Eviction.LRU)
    for version in range(1, 20):
        update(rows, runner, list(range(100 * version, 100 * version + 100)), version)
    assert 600 < len(rows) <= 640
    ids = rows.index.ids.copy()
    whole, other = made()
    update(whole, other, ids.tolist(), 1)
    assert np.array_equal(rows.read(ids), whole.read(ids))
    mine, theirs = rows.columns(0, len(ids)), whole.columns(0, len(ids))
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine if name != "last")


def test_rows_move_as_columns_and_go_on_as_before():
    rows, runner = made()
    for version in range(1, 4):
        update(rows, runner, list(range(version, 10)), version)
    copy, other = made()
    for begin in range(0, len(rows), 4):
        copy.take(rows.columns(begin, begin + 4))
    for each, mine in ((rows, runner), (copy, other)):
        update(each, mine, [2, 8, 11], 4)
    ids = np.arange(12)
    assert np.array_equal(rows.read(ids), copy.read(ids))


def test_another_optimizer_begins_without_state():
    rows, runner = made()
    update(rows, runner, [1], 1)
    values = rows.read(np.array([1]))
    sgd = RowOptimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}), 3, torch.float64)
    rows.use(sgd, keep_state=False)
    update(rows, sgd, [1], 2)
    assert np.allclose(rows.read(np.array([1])), values - 1)
    update(rows, sgd, [1], 3)
    assert np.allclose(rows.read(np.array([1])), values - 2.5)


def test_state_that_was_never_made_is_refused():
    rows, runner = made()
    update(rows, runner, [1], 1)
    other = RowOptimizer(OptimizerSpec("adam", {"amsgrad": True}), 3, torch.float64)
    with pytest.raises(ConfigError, match="max_exp_avg_sq"):
        rows.use(other, keep_state=True)
    update(rows, runner, [1], 2)


def test_memory_follows_the_rows():
    rows, runner = made("sgd")
    for version in range(1, 51):
        update(rows, runner, list(range(1000 * version, 1000 * version + 1000)), version)
    assert rows.nbytes < 50_000 * (3 * 8 + 60)
