import pytest
import torch

from bireme.errors import ConfigError, StateError
from bireme.kvstore import calls
from bireme.kvstore.reduce.rows import take_rows
from bireme.kvstore.table import Table

ROWS = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (3, 2), check_invariants=True)


@pytest.fixture
def entries():
    table = Table()
    table.add({0: torch.zeros(3, 2), 1: torch.zeros(3, 2).to_sparse(1)})
    return table.all()


def test_pushes(entries):
    dense, sparse = calls.pushes(entries, [0, 1], True, [[torch.ones(3, 2)] * 2, ROWS])
    assert (dense.entry.key, len(dense.values), dense.row_sparse) == (0, 2, False)
    assert (sparse.entry.key, len(sparse.values), sparse.row_sparse) == (1, 1, True)


def test_mixed_values_become_dense(entries):
    (push,) = calls.pushes(entries[:1], [0], False, [torch.ones(3, 2), ROWS])
    assert not push.row_sparse
    assert [value.layout for value in push.values] == [torch.strided] * 2
    assert push.values[1].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_mixed_values_of_stride_0_are_read():
    table = Table()
    table.add({0: torch.zeros(4, 1)})
    layer = torch.nn.Embedding(4, 1, sparse=True)
    layer(torch.tensor([2])).sum().backward()
    (push,) = calls.pushes(table.all(), [0], False, [layer.weight.grad, torch.ones(4, 1)])
    assert push.values[0].flatten().tolist() == [0, 0, 1, 0]


def test_every_value_is_checked(entries):
    with pytest.raises(ConfigError, match=r"key 0 .*\(2, 3\)"):
        calls.pushes(entries[:1], [0], False, [torch.ones(3, 2), torch.ones(2, 3)])
    with pytest.raises(ConfigError, match=r"key 0 .*\(2, 3\)"):
        calls.pulls(entries[:1], [0], False, [torch.ones(3, 2), torch.ones(2, 3)])


def test_first_values():
    value = torch.zeros(2)
    assert calls.first_values([5], False, [value]) == {5: value}
    with pytest.raises(StateError, match="5 is initialised twice"):
        calls.first_values([5, 5], True, [value, value])
    with pytest.raises(ConfigError, match="one value for key 5, got 2"):
        calls.first_values([5], False, [value, value])


def test_row_pull_takes_sorted_unique_rows(entries):
    (pull,) = calls.row_pulls(entries[:1], [0], False, None, torch.tensor([[2, 0], [2, 2]]))
    assert [rows.tolist() for rows in pull.rows] == [[0, 2]]
    assert pull.outs is None
    entries[0].value.copy_(torch.arange(6.0).reshape(3, 2))
    taken = [take_rows(pull.entry.value, rows) for rows in pull.rows]
    assert pull.give(taken).to_dense().tolist() == [[0, 1], [0, 0], [4, 5]]


def test_row_pull_of_a_scalar():
    table = Table()
    table.add({0: torch.zeros(())})
    with pytest.raises(ConfigError, match="scalar"):
        calls.row_pulls(table.all(), [0], False, None, torch.tensor([0]))


@pytest.mark.parametrize("call", [calls.pushes, calls.pulls])
def test_empty_lists(call):
    assert call([], [], True, []) == []
    for wrong in ([torch.ones(1)], torch.ones(1)):
        with pytest.raises(ConfigError, match="empty list of keys"):
            call([], [], True, wrong)
