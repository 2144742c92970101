import numpy as np
import pytest
import torch
from tests.node.tables.samples import filled

from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.node.memory import tensor_over
from bireme.node.tables.cell import TableCell
from bireme.node.tables.initial import first_rows
from bireme.types.choices import Eviction, Layout
from bireme.update import OptimizerSpec
from bireme.wire.messages import PushEntry
from bireme.wire.tables import TableSpec

SGD = OptimizerSpec("sgd", {"lr": 1.0})


def cell(**fields):
    made = TableCell(7, (1, 0), TableSpec(dim=2, **fields))
    made.set_optimizer(SGD)
    return made


def push(table, ids, value=1.0):
    entry, payload, offset = filled(ids, value)
    table.check_push(entry, payload, offset)
    return table.first(entry, payload, offset, 1.0)


def read(table, ids):
    held, size = table.read(memoryview(np.array(ids).tobytes()), len(ids))
    return tensor_over(held.view, torch.float32, size // 4).view(-1, 2)


def test_a_round_updates_and_a_read_sees_it():
    table = cell()
    table.finish(push(table, [5, 6]).plus(push(table, [6])), 1.0, 2.0, 1)
    first = torch.from_numpy(first_rows(table.spec, np.array([6, 5, 4])))
    assert torch.equal(read(table, [6, 5, 4]), first - torch.tensor([[1.0], [0.5], [0.0]]))
    assert table.report()["rows"] == 2


def test_what_cannot_be_added_is_refused():
    table = cell()
    entry, payload, offset = filled([5], 1.0)
    for wrong in (
        PushEntry(1, 0, 0, entry.payload_bytes, "raw", Layout.DENSE),
        PushEntry(1, 0, 0, entry.payload_bytes, "fp16", Layout.ROWS, 1),
        PushEntry(1, 0, 0, entry.payload_bytes, "raw", Layout.ROWS, 2),
    ):
        with pytest.raises(ConfigError, match=r"1\.0"):
            table.check_push(wrong, payload, offset)
    bare = TableCell(7, (1, 0), TableSpec(dim=2))
    with pytest.raises(StateError, match="no optimizer"):
        bare.check_push(entry, payload, offset)
    with pytest.raises(UnsupportedError, match="whole matrix"):
        bare.set_optimizer(OptimizerSpec("adafactor"))


def test_a_full_table_refuses_new_rows_and_counts_those_of_the_open_round():
    table = cell(max_rows=3, eviction=Eviction.REFUSE)
    total = push(table, [1, 2])
    with pytest.raises(StateError, match="2 new ones do not fit"):
        push(table, [3, 4])
    total = total.plus(push(table, [2, 3, 3]))
    table.finish(total, 1.0, 1.0, 1)
    assert table.report()["rows"] == 3
    table.finish(push(table, [1, 2, 3]), 1.0, 1.0, 2)
    with pytest.raises(StateError, match="max_rows"):
        push(table, [4])


def test_numbers_change_and_state_stays():
    table = cell()
    momentum = {"lr": 1.0, "momentum": 0.5}
    table.set_optimizer(OptimizerSpec("sgd", momentum))
    table.finish(push(table, [1]), 1.0, 1.0, 1)
    table.set_optimizer(OptimizerSpec("sgd", {**momentum, "lr": 0.0}))
    before = read(table, [1])
    table.finish(push(table, [1]), 1.0, 1.0, 2)
    assert torch.equal(read(table, [1]), before)
    table.set_optimizer(OptimizerSpec("sgd", momentum))
    table.finish(push(table, [1]), 1.0, 1.0, 3)
    assert torch.allclose(before - read(table, [1]), torch.tensor(1.75))


def test_an_optimizer_that_fails_is_told_in_one_way():
    table = cell()
    table.optimizer.step = lambda *_: (_ for _ in ()).throw(RuntimeError("broken"))
    with pytest.raises(ConfigError, match="broken"):
        table.finish(push(table, [1]), 1.0, 1.0, 1)
    assert table.report()["rows"] == 0
