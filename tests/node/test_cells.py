import torch

from bireme.node.cells import Cell
from bireme.node.memory import tensor_over
from bireme.node.partials import DensePartial, SlotShape


class Plain:
    def __init__(self, size):
        self.view = memoryview(bytearray(size))

    def release(self):
        pass


def make(values, dtype=torch.float32, whole=None, row_length=1):
    value = torch.tensor(values, dtype=dtype)
    shape = SlotShape(dtype, len(value), row_length)
    cell = Cell(0, (1, 0), shape, whole, Plain)
    cell.fill(value)
    return cell


def total(cell, values):
    partial = DensePartial.alone(cell.shape, Plain)
    partial.tensor.copy_(torch.tensor(values))
    return partial


def shown(cell, held=None):
    held = held or cell.read()
    return tensor_over(held.view, cell.shape.dtype, cell.shape.length).tolist()


def test_a_sum_takes_the_place_of_the_value_without_a_copy():
    cell = make([1.0, 2.0])
    partial = total(cell, [5.0, 6.0])
    cell.assign(partial)
    assert cell.read() is partial.memory
    assert shown(cell) == [5.0, 6.0]


def test_memory_that_was_read_never_changes():
    cell = make([1.0, 2.0])
    held = cell.read()
    held.retain()
    cell.overwrite(torch.tensor([3.0, 4.0]))
    assert (shown(cell, held), shown(cell)) == ([1.0, 2.0], [3.0, 4.0])
    param = cell.parameter()
    kept = cell.read()
    kept.retain()
    param.add_(1)
    cell.changed()
    assert (shown(cell, kept), shown(cell)) == ([3.0, 4.0], [4.0, 5.0])


def test_half_types_are_updated_in_float32():
    cell = make([1.0], torch.float16)
    for _ in range(8):
        cell.parameter().add_(2.0**-12)
        cell.changed()
    assert cell.parameter().dtype is torch.float32
    assert shown(cell) == [1 + 2.0**-9]
    cell.drop_parameter()
    assert cell.param is None
    assert shown(cell) == [1 + 2.0**-9]
    cell.assign(total(cell, [2.5]))
    assert shown(cell) == [2.5]


def test_shape_that_an_optimizer_sees():
    assert make([0.0] * 6, whole=(1, 2, 3), row_length=6).param_shape == (1, 2, 3)
    assert make([0.0] * 6, row_length=3).param_shape == (2, 3)
    assert make([0.0] * 6).param_shape == (6,)
    assert make([0.0], whole=()).parameter().shape == ()


def test_overwriting_changes_the_parameter_too():
    cell = make([0.0] * 4, row_length=2)
    cell.parameter()
    cell.overwrite(torch.arange(4.0))
    assert cell.parameter().tolist() == [[0, 1], [2, 3]]
    assert shown(cell) == [0, 1, 2, 3]


def test_zeros_need_no_source():
    cell = make([3.0])
    cell.fill(None)
    assert shown(cell) == [0.0]
    cell.free()


def test_the_sums_of_a_small_slot_take_turns_in_two_pieces_of_memory():
    cell = make([1.0, 2.0])
    seen = []
    for number in range(6):
        partial = cell.take_spare() or total(cell, [0.0, 0.0])
        partial.tensor.copy_(torch.tensor([float(number), 1.0]))
        cell.assign(partial)
        seen.append(id(partial))
        assert shown(cell) == [float(number), 1.0]
    assert len(set(seen)) == 2


def test_memory_that_is_being_sent_is_no_spare():
    cell = make([1.0, 2.0])
    cell.assign(total(cell, [3.0, 4.0]))
    held = cell.read()
    held.retain()
    cell.assign(total(cell, [5.0, 6.0]))
    assert cell.take_spare() is None
    held.release()
    assert shown(cell, held) == [3.0, 4.0]


def test_what_was_overwritten_in_other_memory_is_no_spare():
    cell = make([1.0, 2.0])
    cell.assign(total(cell, [3.0, 4.0]))
    held = cell.read()
    held.retain()
    cell.overwrite(torch.tensor([9.0, 9.0]))
    cell.assign(total(cell, [5.0, 6.0]))
    assert cell.take_spare() is None
    assert (shown(cell), shown(cell, held)) == ([5.0, 6.0], [3.0, 4.0])
