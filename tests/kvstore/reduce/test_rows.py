import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.kvstore.reduce.rows import sum_rows, take_rows, to_dense

CPU = torch.device("cpu")


def rows(ids, num_rows=6, dtype=torch.float32):
    content = torch.arange(1.0, len(ids) + 1)[:, None].expand(-1, 2).to(dtype)
    return torch.sparse_coo_tensor(
        torch.tensor([ids], dtype=torch.int64), content, (num_rows, 2), check_invariants=True
    )


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=5))
def test_sum_equals_the_dense_sum(parts):
    values = [rows(ids) for ids in parts]
    total = sum_rows(values, CPU)
    assert total.is_coalesced()
    assert total.indices()[0].tolist() == sorted({each for ids in parts for each in ids})
    assert torch.equal(total.to_dense(), sum(value.to_dense() for value in values))


def test_order_of_addition_is_the_order_given():
    values = [torch.randn(50, 2).mul(10.0**power).to_sparse(1) for power in range(-3, 4)]
    expected = values[0].to_dense()
    for value in values[1:]:
        expected = expected + value.to_dense()
    assert torch.equal(sum_rows(values, CPU).to_dense(), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.int64, torch.uint8], ids=str)
def test_other_dtypes(dtype):
    total = sum_rows([rows([1, 1, 3], dtype=dtype), rows([3], dtype=dtype)], CPU)
    assert total.dtype is dtype
    assert total.to_dense()[:, 0].tolist() == [0, 3, 0, 4, 0, 0]


def test_one_value_is_copied():
    value = rows([1]).coalesce()
    total = sum_rows([value], CPU)
    value.values().fill_(9)
    assert total.to_dense()[1].tolist() == [1, 1]


def test_values_of_more_dimensions():
    value = torch.ones(3, 2, 4).to_sparse(1)
    assert torch.equal(sum_rows([value, value], CPU).to_dense(), torch.full((3, 2, 4), 2.0))


@pytest.mark.parametrize("sparse", [False, True])
def test_take_rows(sparse):
    dense = torch.zeros(6, 2)
    dense[[1, 4]] = torch.tensor([[1.0, 2], [3, 4]])
    value = dense.to_sparse(1) if sparse else dense
    taken = take_rows(value, torch.tensor([0, 4, 5]))
    assert taken.indices()[0].tolist() == [0, 4, 5]
    assert taken.values().tolist() == [[0, 0], [3, 4], [0, 0]]
    assert take_rows(value, torch.tensor([], dtype=torch.int64)).to_dense().sum() == 0


def test_take_rows_of_an_empty_value():
    value = torch.zeros(6, 2).to_sparse(1)
    assert take_rows(value, torch.tensor([2])).to_dense().sum() == 0


def test_taken_rows_are_a_copy():
    value = torch.ones(3, 2)
    taken = take_rows(value, torch.tensor([0, 1, 2]))
    value.fill_(5)
    assert taken.values().max() == 1


def of_stride_0(num_rows=4) -> torch.Tensor:
    layer = torch.nn.Embedding(num_rows, 1, sparse=True)
    layer(torch.tensor([2])).sum().backward()
    assert layer.weight.grad._values().stride() == (0, 0)
    return layer.weight.grad


def test_to_dense_reads_values_of_stride_0():
    assert to_dense(of_stride_0()).flatten().tolist() == [0, 0, 1, 0]


@given(st.lists(st.integers(0, 5), max_size=8))
def test_to_dense_equals_torchs(ids):
    assert torch.equal(to_dense(rows(ids)), rows(ids).to_dense())


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.uint8], ids=str)
def test_to_dense_keeps_the_type(dtype):
    dense = to_dense(rows([3, 3], dtype=dtype))
    assert dense.dtype is dtype
    assert dense[:, 0].tolist() == [0, 0, 0, 3, 0, 0]
