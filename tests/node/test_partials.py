import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.compress import create
from bireme.node.encodings import encoding_of
from bireme.node.partials import DensePartial, RowsPartial, SlotShape, scale_, sum_dtype, weighed
from bireme.types.choices import Layout
from bireme.wire.messages import PushEntry


class Plain:
    def __init__(self, size):
        self.view = memoryview(bytearray(size))

    def release(self):
        pass


def raw(tensor):
    return memoryview(bytearray(tensor.contiguous().view(torch.uint8).numpy().tobytes()))


def entry(payload, encoding="raw", num_rows=0):
    layout = Layout.ROWS if num_rows else Layout.DENSE
    return PushEntry(1, 0, 0, len(payload), encoding, layout, num_rows)


def dense(values, weight=1.0, dtype=torch.float32):
    value = torch.tensor(values, dtype=dtype)
    partial = DensePartial.alone(SlotShape(dtype, len(value), 1), Plain)
    partial.take(entry(raw(value)), raw(value), 0, weight)
    return partial


def test_half_types_are_summed_in_float32():
    partial = dense([2048.0], dtype=torch.float16)
    one = torch.ones(1, dtype=torch.float16)
    for _ in range(3):
        partial.add(entry(raw(one)), raw(one), 0, 1.0)
    assert partial.tensor.dtype is sum_dtype(torch.float16) is torch.float32
    assert partial.tensor.tolist() == [2051.0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float64])
def test_weights(dtype):
    partial = dense([3, 4], 2.5, dtype)
    value = torch.tensor([1, 1], dtype=dtype)
    partial.add(entry(raw(value)), raw(value), 0, 2.0)
    exact = dtype.is_floating_point
    assert partial.tensor.tolist() == [9.5 if exact else 9, 12]
    partial.scale(3.0, 4.0)
    assert partial.tensor.tolist() == ([7.125, 9.0] if exact else [6, 9])


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=2), st.floats(0, 8, width=16))
def test_bits_do_not_depend_on_who_came_first(values, weight):
    parts = [torch.tensor([each]) for each in values]
    results = []
    for first, second in (parts, parts[::-1]):
        partial = dense(first.tolist(), weight)
        partial.add(entry(raw(second)), raw(second), 0, weight)
        results.append(partial.tensor.clone())
    assert torch.equal(*results)


@pytest.mark.parametrize("how", ["2bit", "1bit", "fp16", "bf16"])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_compressed_contributions(how, weight):
    compressor = create({"type": how})
    grad = torch.linspace(-2, 2, 37)
    code, _ = compressor.compress(grad, compressor.init(grad))
    payload = raw(code.data.view(torch.uint8))
    said = entry(payload, encoding_of(compressor))
    partial = DensePartial.alone(SlotShape(torch.float32, 37, 1), Plain)
    partial.take(said, payload, 0, weight)
    partial.add(said, payload, 0, weight)
    assert torch.equal(partial.tensor, 2 * weight * compressor.decompress(code))


def rows(ids, fill, shape, weight=1.0):
    content = torch.full((len(ids), shape.row_length), fill, dtype=shape.dtype)
    payload = memoryview(bytes(raw(torch.tensor(ids, dtype=torch.int64))) + bytes(raw(content)))
    return RowsPartial.of(entry(payload, num_rows=len(ids)), payload, 0, weight, shape)


def test_rows_are_sorted_and_repeated_ones_summed():
    shape = SlotShape(torch.float16, 12, 3)
    partial = rows([3, 0, 3], 1.5, shape, 2.0)
    assert partial.ids.tolist() == [0, 3]
    assert partial.rows.tolist() == [[3.0] * 3, [6.0] * 3]
    both = partial.plus(rows([1, 3], 1.0, shape))
    assert both.ids.tolist() == [0, 1, 3]
    assert both.rows[:, 0].tolist() == [3.0, 1.0, 7.0]
    target = torch.ones(12)
    both.add_to(target)
    assert target.view(4, 3)[:, 0].tolist() == [4.0, 2.0, 1.0, 8.0]
    both.free()


def test_a_scale_of_one_changes_no_bit():
    value = torch.tensor([0.1, -0.0])
    before = value.clone()
    scale_(value, 1.0, 1.0)
    assert torch.equal(value, before)
    assert weighed(torch.tensor([7], dtype=torch.int32), 0.5).tolist() == [3]
