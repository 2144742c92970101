import inspect

import numpy as np
import pytest
from tests.node.tables.samples import filled
from tests.node.test_cells import Plain
from tests.node.test_values import Received, dense, init, shown

from bireme.core.values import SlotValues
from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.node.tables.values import WithTables
from bireme.node.values import TorchSlotValues
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.update import OptimizerSpec, to_body
from bireme.wire.messages import CommandKind, InitEntry
from bireme.wire.tables import TableSpec, encode_table

SGD = to_body(OptimizerSpec("sgd", {"lr": 1.0}), {})


@pytest.fixture
def values():
    return WithTables(TorchSlotValues(Plain))


def table(values, store=9, raw=None):
    raw = raw or encode_table(TableSpec(dim=2))
    entry = InitEntry(3, 0, DType("float32"), 0, 2, Layout.TABLE, Consistency.SYNC, len(raw))
    values.check_init(entry)
    return values.initialise(store, entry, Received(memoryview(b"xy" + raw)), 2)


def test_plain_slots_are_computed_on_as_before(values):
    table(values)
    cell = init(values)
    values.finish(cell, dense(values, cell, [1.0] * 4), 1.0, 1.0, 1)
    assert shown(values, cell) == [1] * 4
    assert not values.can_update(0)


def test_rounds_of_a_table(values):
    cell = table(values)
    assert not values.can_update(9)
    values.command(9, CommandKind.SET_OPTIMIZER, SGD, None)
    assert values.can_update(9)
    ids = np.array([4, 5])
    before, size = values.read_rows(cell, Received(memoryview(ids.tobytes())), 2)
    entry, payload, offset = filled([4], 1.0)
    values.check_push(cell, entry, Received(payload), offset)
    total = values.first(cell, entry, Received(payload), offset, 1.0)
    total = values.add(cell, total, entry, Received(payload), offset, 2.0)
    total = values.merge(total, values.first(cell, entry, Received(payload), offset, 1.0))
    values.finish(cell, total, 1.0, 4.0, 1)
    after, _ = values.read_rows(cell, Received(memoryview(ids.tobytes())), 2)
    change = np.frombuffer(before.view, np.float32) - np.frombuffer(after.view, np.float32)
    assert (size, change.round(5).tolist()) == (16, [1, 1, 0, 0])
    assert values.read(cell)[1] == 0
    (report,) = values.report()["tables"]
    assert (report["key_id"], report["rows"]) == (3, 1)


def test_what_is_no_table_is_refused(values):
    with pytest.raises(ConfigError, match="cannot be read"):
        table(values, raw=b"\x93\x01")
    entry = InitEntry(3, 0, DType("int8"), 0, 2, Layout.TABLE, Consistency.SYNC, 0)
    with pytest.raises(ConfigError, match="float32 or float64"):
        values.check_init(entry)


def test_commands_find_their_table(values):
    table(values)
    body, handle, size = values.command(9, CommandKind.TABLE, {"op": "report"}, None)
    assert (body["rows"], handle, size) == (0, None, 0)
    with pytest.raises(UnsupportedError, match="save_state"):
        values.command(9, CommandKind.SAVE_STATE, {}, None)
    with pytest.raises((UnsupportedError, StateError)):
        values.command(1, CommandKind.TABLE, {"op": "report"}, None)


def test_it_offers_all_that_the_core_asks_for():
    for name in (name for name in vars(SlotValues) if not name.startswith("_")):
        asked = inspect.signature(getattr(SlotValues, name)).parameters
        assert list(asked) == list(inspect.signature(getattr(WithTables, name)).parameters), name


def test_tables_are_not_joined_with_other_slots(values):
    assert values.join([table(values), init(values)]) is None
