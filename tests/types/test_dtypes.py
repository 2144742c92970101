"""Names and sizes are torch's."""

import pytest
import torch

from bireme.types import DType
from bireme.update.layout import DTYPES


@pytest.mark.parametrize("dtype", list(DType))
def test_torch_agrees(dtype):
    of_torch = getattr(torch, dtype.value)
    assert dtype.itemsize == of_torch.itemsize
    assert dtype.is_floating == of_torch.is_floating_point


def test_every_type_that_a_store_holds_has_a_name():
    assert {getattr(torch, dtype.value) for dtype in DType} == DTYPES
