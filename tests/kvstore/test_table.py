import pytest
import torch

from bireme.errors import ConfigError, StateError, UnknownKeyError
from bireme.kvstore.table import Table


@pytest.fixture
def table():
    table = Table()
    table.add({"a": torch.zeros(2), "b": torch.ones(2)})
    return table


def test_found_once_each_in_order_of_mention(table):
    assert [entry.key for entry in table.find(["b", "a", "b"])] == ["b", "a"]
    assert [entry.ordinal for entry in table.all()] == [0, 1]
    assert table.find([]) == []


def test_values_are_copies():
    value = torch.arange(6.0).reshape(2, 3).T
    sparse = torch.ones(2, 2).to_sparse(1)
    table = Table()
    table.add({0: value, 1: sparse})
    dense, rows = (entry.value for entry in table.all())
    value.fill_(9)
    sparse.values().fill_(9)
    assert dense.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert dense.is_contiguous()
    assert rows.to_dense().tolist() == [[1, 1], [1, 1]]
    assert rows.is_coalesced()


def test_row_sparse_values_of_stride_0_are_read():
    value = torch.sparse_coo_tensor(
        [[2]], torch.ones(()).expand(1, 1), (4, 1), is_coalesced=True, check_invariants=True
    )
    table = Table()
    table.add({0: value})
    assert table.all()[0].value.to_dense().flatten().tolist() == [0, 0, 1, 0]


def test_adding_is_all_or_nothing(table):
    with pytest.raises(StateError, match="'b' is initialised already"):
        table.add({"c": torch.zeros(1), "b": torch.zeros(1)})
    with pytest.raises(ConfigError):
        table.add({"c": torch.zeros(1), "d": torch.zeros(1, dtype=torch.bool)})
    with pytest.raises(ConfigError, match="string keys"):
        table.add({1: torch.zeros(1)})
    assert len(table.all()) == 2


def test_unknown(table):
    with pytest.raises(UnknownKeyError, match=r"'x'.*init"):
        table.find(["a", "x"])


def test_failed_first_add_leaves_the_kind_open():
    table = Table()
    with pytest.raises(ConfigError):
        table.add({"a": torch.zeros(1, dtype=torch.bool)})
    table.add({1: torch.zeros(1)})


def test_clear(table):
    table.clear()
    assert table.all() == []
