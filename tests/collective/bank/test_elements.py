import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.collective.bank.elements import (
    NumpyElements,
    Reduction,
    WidenedElements,
    elements_of,
    raw_bytes,
)
from bireme.errors import UnsupportedError

KNOWN = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", KNOWN)
def test_a_view_of_shared_bytes_holds_what_was_copied(dtype):
    elements = elements_of(dtype)
    area = np.zeros(80, np.uint8)
    source = torch.arange(5).to(torch.float32).to(dtype)
    elements.copy(elements.view(area)[:5], elements.of(source))
    target = torch.zeros(5, dtype=torch.float32).to(dtype)
    elements.copy(elements.of(target), elements.view(area)[:5])
    assert bytes(raw_bytes(target)) == bytes(raw_bytes(source))
    assert elements.item_bytes == source.element_size()


@given(st.lists(st.lists(st.integers(-50, 50), min_size=4, max_size=4), min_size=1, max_size=5))
def test_integers_are_reduced_exactly(rows):
    elements = NumpyElements(torch.int32)
    tensors = [torch.tensor(row, dtype=torch.int32) for row in rows]
    stack = torch.stack(tensors).long()
    want = {
        Reduction.SUM: stack.sum(0),
        Reduction.AVG: (stack.sum(0).double() / len(rows)).trunc(),
        Reduction.MIN: stack.amin(0),
        Reduction.MAX: stack.amax(0),
    }
    for op, expected in want.items():
        out = torch.zeros(4, dtype=torch.int32)
        elements.fold([elements.of(each) for each in tensors], elements.of(out), op)
        assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_added_in_32_and_rounded_once(dtype):
    elements = WidenedElements(dtype)
    generator = torch.Generator().manual_seed(1)
    # More than two blocks, so that the last one is shorter.
    tensors = [torch.randn(70000, generator=generator).to(dtype) for _ in range(5)]
    out = torch.empty(70000, dtype=dtype)
    elements.fold(tensors, out, Reduction.SUM)
    total = torch.zeros(70000)
    for tensor in tensors:
        total += tensor.float()
    assert torch.equal(out, total.to(dtype))
    elements.fold(tensors, out, Reduction.AVG)
    assert torch.equal(out, (total / 5).to(dtype))


def test_floats_are_added_from_the_first_upwards():
    elements = NumpyElements(torch.float32)
    tensors = [torch.tensor([each], dtype=torch.float32) for each in (1e8, 1.0, -1e8, 1.0)]
    out = torch.zeros(1)
    elements.fold([elements.of(each) for each in tensors], elements.of(out), Reduction.SUM)
    assert out.item() == ((1e8 + 0) - 1e8) + 1.0


def test_an_overflow_warns_nobody_and_a_nan_stays():
    elements = NumpyElements(torch.float32)
    big = torch.tensor([3e38, float("nan")])
    out = torch.zeros(2)
    elements.fold([elements.of(big), elements.of(big.clone())], elements.of(out), Reduction.SUM)
    assert out[0] == float("inf")
    elements.fold([elements.of(torch.zeros(2)), elements.of(big)], elements.of(out), Reduction.MAX)
    assert torch.isnan(out[1])


@pytest.mark.parametrize(
    ("dtype", "op", "word"),
    [
        (torch.float32, Reduction.BAND, "integers only"),
        (torch.complex64, Reduction.BXOR, "integers only"),
        (torch.complex64, Reduction.MAX, "no order"),
        (torch.bool, Reduction.AVG, "convert it"),
        (torch.complex32, Reduction.SUM, "not exchanged"),
    ],
)
def test_what_has_no_meaning_is_refused(dtype, op, word):
    with pytest.raises(UnsupportedError, match=word):
        elements_of(dtype, op)


def test_dividing_in_place():
    half = torch.tensor([3.0, -5.0], dtype=torch.bfloat16)
    elements_of(torch.bfloat16).divide(half, 2)
    assert half.tolist() == [1.5, -2.5]
    whole = torch.tensor([7, -7, 2**62 + 1])
    elements_of(torch.int64).divide(elements_of(torch.int64).of(whole), 2)
    assert whole.tolist() == [3, -3, 2**61]


def test_raw_bytes_share_memory_and_take_any_type():
    for dtype in [*KNOWN, torch.float8_e4m3fnuz]:
        tensor = torch.zeros(3, 2).to(dtype)
        raw_bytes(tensor)[:] = 255 if dtype is not torch.bool else 1
        assert all(raw_bytes(tensor) == (255 if dtype is not torch.bool else 1))
    parameter = torch.nn.Parameter(torch.ones(2))
    raw_bytes(parameter)[:] = 0
    assert parameter.tolist() == [0.0, 0.0]
