import pytest
import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.update.layout import DTYPES, Layout, is_row_sparse


def test_of_dense_and_row_sparse():
    dense = Layout.of("k", torch.zeros(2, 3, dtype=torch.float16))
    assert (dense.shape, dense.dtype, dense.row_sparse) == ((2, 3), torch.float16, False)
    assert dense.size_bytes == 12
    assert Layout.of("k", torch.zeros(2, 3).to_sparse(1)).row_sparse


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
def test_every_listed_dtype_is_held(dtype):
    assert Layout.of("k", torch.zeros(1, dtype=dtype)).dtype is dtype


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1, dtype=torch.bool),
        torch.zeros(1, dtype=torch.complex64),
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(1, device="meta"),
    ],
    ids=["bool", "complex", "two sparse dimensions", "meta"],
)
def test_what_no_store_holds(value):
    with pytest.raises(UnsupportedError, match="'k'"):
        Layout.of("k", value)


def test_row_sparse_values_of_a_dense_key():
    layout = Layout.of("k", torch.zeros(2, 3))
    layout.check_value("k", torch.zeros(2, 3).to_sparse(1))
    with pytest.raises(ConfigError, match=r"\(3, 3\)"):
        layout.check_value("k", torch.zeros(3, 3).to_sparse(1))
    with pytest.raises(ConfigError, match="float64"):
        layout.check_value("k", torch.zeros(2, 3).double().to_sparse(1))


def test_dense_value_of_a_row_sparse_key():
    layout = Layout.of("k", torch.zeros(2, 3).to_sparse(1))
    with pytest.raises(ConfigError, match=r"to_sparse\(1\)"):
        layout.check_value("k", torch.zeros(2, 3))


def test_outs():
    layout = Layout.of("k", torch.zeros(2, 3))
    layout.check_out("k", torch.zeros(2, 3))
    layout.check_sparse_out("k", torch.zeros(2, 3).to_sparse(1))
    with pytest.raises(ConfigError, match="row_sparse_pull"):
        layout.check_out("k", torch.zeros(2, 3).to_sparse(1))
    with pytest.raises(ConfigError, match="use pull"):
        layout.check_sparse_out("k", torch.zeros(2, 3))
    with pytest.raises(UnsupportedError, match="meta"):
        layout.check_out("k", torch.zeros(2, 3, device="meta"))


def test_is_row_sparse():
    assert is_row_sparse(torch.zeros(2, 3).to_sparse(1))
    assert not is_row_sparse(torch.zeros(2, 3))
    assert not is_row_sparse(torch.zeros(2, 3).to_sparse(2))
