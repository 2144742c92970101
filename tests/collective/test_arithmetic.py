"""Factors: integers in float64 and truncated, halves in float32."""

import pytest
import torch

from bireme.collective.arithmetic import factors, row_counts, scale_
from bireme.types import ReduceOp


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str
)
def test_integers_are_truncated_towards_zero(dtype):
    values = [7, 10] if dtype is torch.uint8 else [7, -7]
    tensor = torch.tensor(values, dtype=dtype)
    scale_(tensor, 0.3)
    assert tensor.tolist() == [int(value * 0.3) for value in values]
    assert tensor.dtype is dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_scaled_in_float32_and_rounded_once(dtype):
    tensor = torch.linspace(-3, 3, 101).to(dtype)
    expected = (tensor.float() * (1 / 3)).to(dtype)
    scale_(tensor, 1 / 3)
    assert torch.equal(tensor, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_other_types_are_scaled_as_they_are(dtype):
    tensor = torch.ones(3, dtype=dtype)
    scale_(tensor, 1 / 3)
    assert torch.equal(tensor, torch.ones(3, dtype=dtype) * (1 / 3))


def test_a_factor_of_one_touches_nothing():
    tensor = torch.tensor([2**62 + 1])
    scale_(tensor, 1.0)
    assert tensor.item() == 2**62 + 1


def test_only_an_average_divides():
    assert factors(ReduceOp.AVERAGE, 2.0, 3.0, 4) == (2.0, 0.75)
    assert factors(ReduceOp.SUM, 2.0, 3.0, 4) == (2.0, 3.0)


def test_large_tensors_are_scaled_in_parts():
    tensor = torch.arange(2**21 + 3) % 100
    expected = (tensor.double() * 0.3).to(torch.int64)
    scale_(tensor, 0.3)
    assert torch.equal(tensor, expected)
    columns = torch.full((4, 3), 10, dtype=torch.int32).t()
    scale_(columns, 0.5)
    assert columns.tolist() == [[5] * 4] * 3


def test_counts_are_int32_while_that_holds_them():
    counts = row_counts([0, 2**31 - 1], torch.device("cpu"))
    assert (counts.dtype, counts.tolist()) == (torch.int32, [0, 2**31 - 1])
    assert row_counts([], None).dtype is torch.int32
    assert row_counts([2**40], None).tolist() == [2**40]
