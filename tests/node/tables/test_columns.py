import numpy as np
import torch

from bireme.node.tables.columns import Column


def test_rows_stay_and_new_ones_are_zero():
    column = Column(np.float32, 3)
    for count in (1, 100, 1000, 5000):
        before = len(column.rows)
        column.resize(count)
        assert not column.rows[before:].any()
        column.rows[before:] = count
    assert column.rows[[0, 1, 100, 4999], 2].tolist() == [1, 100, 1000, 5000]
    assert torch.equal(column.tensor, torch.from_numpy(column.rows))


def test_memory_is_in_proportion():
    column = Column(np.int64, 0)
    for count in range(0, 200_000, 999):
        column.resize(count)
    assert column.nbytes <= 1.3 * 8 * len(column.rows)


def test_a_smaller_column_gives_memory_back_and_reuses_it_as_zeros():
    column = Column(np.int64, 0)
    column.resize(10_000)
    column.rows[:] = np.arange(10_000)
    column.shrink(1000, np.array([3, 5]), np.array([5000, 9999]))
    assert column.rows[[2, 3, 4, 5, 999]].tolist() == [2, 5000, 4, 9999, 999]
    assert column.nbytes == 8000
    column.shrink(900, np.array([], np.int64), np.array([], np.int64))
    column.resize(1000)
    assert not column.rows[900:].any()
