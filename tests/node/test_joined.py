import gc

import torch
from tests.node.test_values import Received, init, shown, values  # noqa: F401

from bireme.node.values import TorchSlotValues
from bireme.transport.pool import BufferPool, PooledBuffer
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


def test_nothing_keeps_the_memory_of_sums_from_before():
    pool = BufferPool(1 << 30)
    server = TorchSlotValues(lambda size_bytes: PooledBuffer(pool, size_bytes))
    size_bytes, count = 40_000, 10
    cells = [init(server, (key, 0), [0.0] * 10_000, row_length=1) for key in range(count)]

    def push(number, cells):
        # As the slots of one message, whose sums lie in one piece of memory.
        payload = Received(memoryview(bytearray(size_bytes * len(cells))))
        for position, cell in enumerate(cells):
            entry, start = PushEntry(position, 0, 0, size_bytes), position * size_bytes
            total = server.first(cell, entry, payload, start, 1.0)
            server.finish(cell, total, 1.0, 1.0, number)

    for number in range(2):
        push(number, cells[:5])
        push(number, cells[5:])
    groups = [server.join(cells[:5]), server.join(cells[5:])]
    for group in groups:
        entry = PushEntry(0, 0, 0, 5 * size_bytes)
        total = server.first(group, entry, Received(memoryview(bytearray(5 * size_bytes))), 0, 1.0)
        server.finish(group, total, 1.0, 1.0, 2)
    gc.collect()
    # Both values, and the newest piece, which its message may ask more of.
    assert pool._demand.used_bytes < 1.7 * count * size_bytes
