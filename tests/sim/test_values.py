import struct

import pytest

from bireme.errors import BiremeError
from bireme.sim.values import FloatValues, pack, unpack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import CommandKind, InitEntry, PushEntry


@pytest.fixture
def values():
    return FloatValues()


@pytest.fixture
def cell(values):
    entry = InitEntry(0, 0, DType.FLOAT64, 4, 2, Layout.DENSE, Consistency.SYNC, 32)
    return values.initialise(0, entry, pack([9.0, 1.0, 2.0, 3.0, 4.0]), 8)


DENSE = PushEntry(0, 0, 0, 32)
ONES = pack([1.0] * 4)


def test_a_round_replaces_the_value_or_moves_it(values, cell):
    partial = values.first(cell, DENSE, ONES, 0, 2.0)
    partial = values.add(cell, partial, DENSE, ONES, 0, 1.0)
    values.finish(cell, partial, 2.0, 3.0, 1)
    assert unpack(values.read(cell)[0]) == [2.0] * 4
    values.command(0, CommandKind.SET_OPTIMIZER, {"rate": -1.0}, None)
    values.finish(cell, values.first(cell, DENSE, ONES, 0, 1.0), 1.0, 1.0, 2)
    assert unpack(values.read(cell)[0]) == [1.0] * 4


def test_rows_are_added_where_they_belong(values, cell):
    entry = PushEntry(0, 0, 0, 24, "raw", Layout.ROWS, 1)
    payload = struct.pack("<q", 1) + pack([5.0, 6.0])
    values.check_push(cell, entry, payload, 0)
    assert values.first(cell, entry, payload, 0, 1.0) == [0.0, 0.0, 5.0, 6.0]
    with pytest.raises(BiremeError, match="row 2"):
        values.check_push(cell, entry, struct.pack("<q", 2) + pack([5.0, 6.0]), 0)


@pytest.mark.parametrize("size", [0, 24, 40])
def test_a_wrong_size_is_refused(values, cell, size):
    with pytest.raises(BiremeError, match="32 bytes"):
        values.check_push(cell, PushEntry(0, 0, 0, size), ONES, 0)


def test_commands_are_checked(values):
    with pytest.raises(BiremeError, match="rate"):
        values.command(0, CommandKind.SET_OPTIMIZER, {}, None)
    with pytest.raises(BiremeError, match="no optimizer"):
        values.command(0, CommandKind.SET_HYPER_PARAMETERS, {"rate": 1.0}, None)
    values.command(0, CommandKind.SET_OPTIMIZER, {"rate": 0.5}, None)
    _, saved, _ = values.command(0, CommandKind.SAVE_STATE, {}, None)
    values.command(3, CommandKind.LOAD_STATE, {}, saved)
    assert values.rates == {0: 0.5, 3: 0.5}
