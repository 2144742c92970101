import torch
from tests.node.test_values import Received, init, shown, values  # noqa: F401

from bireme.wire.messages import PushEntry


def contribution(numbers):
    payload = memoryview(bytearray(torch.tensor(numbers).numpy().tobytes()))
    return PushEntry(1, 0, 0, len(payload)), Received(payload), 0


def joined(values):  # noqa: F811
    cells = [init(values, (key, 0), [float(key)] * key, row_length=1) for key in (1, 2, 3)]
    return cells, values.join(cells)


def test_values_lie_side_by_side_and_come_back(values):  # noqa: F811
    cells, whole = joined(values)
    assert shown(values, whole) == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0]
    total = values.first(whole, *contribution([1.0] * 6), 1.0)
    total = values.add(whole, total, *contribution([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), 2.0)
    values.finish(whole, total, 1.0, 1.0, 1)
    held, _, _ = values.read(whole)
    held.retain()
    assert values.part(whole, []) == []
    assert [shown(values, cell) for cell in cells] == [[1.0], [3.0, 5.0], [7.0, 9.0, 11.0]]
    again = values.first(cells[0], *contribution([9.0]), 1.0)
    values.finish(cells[0], again, 1.0, 1.0, 2)
    assert bytes(held.view)[:4] == torch.tensor([1.0]).numpy().tobytes()


def test_open_sums_are_cut(values):  # noqa: F811
    cells, whole = joined(values)
    partials = [values.first(whole, *contribution([float(n)] * 6), 1.0) for n in (1, 2)]
    parts = values.part(whole, partials)
    assert [[part.tensor.tolist() for part in each] for each in parts] == [
        [[1.0], [1.0] * 2, [1.0] * 3],
        [[2.0], [2.0] * 2, [2.0] * 3],
    ]
    for cell, one, two in zip(cells, *parts, strict=True):
        values.finish(cell, values.merge(one, two), 1.0, 1.0, 1)
    assert shown(values, cells[2]) == [3.0] * 3


def test_other_types_and_optimizers_keep_cells_apart(values):  # noqa: F811
    cells, whole = joined(values)
    values.part(whole, [])
    cells[1].parameter()
    assert values.join(cells) is None
    assert shown(values, cells[2]) == [3.0] * 3
