import pytest
import torch
from tests.node.test_partials import raw

from bireme.errors import BiremeError, ConfigError, UnsupportedError
from bireme.node.checks import check_dense, check_first, check_row_numbers, check_rows
from bireme.node.partials import SlotShape
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import InitEntry, PushEntry

SHAPE = SlotShape(torch.float32, 4, 2)


def first(length, row_length, size_bytes):
    return InitEntry(
        1, 0, DType.FLOAT32, length, row_length, Layout.DENSE, Consistency.SYNC, size_bytes
    )


@pytest.mark.parametrize("sizes", [(4, 2, 16), (4, 2, 0), (0, 0, 0)])
def test_first_values_of_the_slots_size_or_none_are_taken(sizes):
    check_first(first(*sizes))


@pytest.mark.parametrize("sizes", [(4, 2, 15), (4, 3, 16), (4, 0, 16)])
def test_first_values_that_do_not_fit_are_refused(sizes):
    with pytest.raises(ConfigError, match=r"slot 1\.0"):
        check_first(first(*sizes))


@pytest.mark.parametrize(("size_bytes", "encoding"), [(16, "raw"), (16, "sum"), (8, "fp16")])
def test_contributions_to_the_whole_slot(size_bytes, encoding):
    check_dense(SHAPE, PushEntry(1, 0, 0, size_bytes, encoding))


@pytest.mark.parametrize(
    "entry",
    [PushEntry(1, 0, 0, 12), PushEntry(1, 0, 0, 16, "zip"), PushEntry(1, 0, 0, 16, "2bit:0.5")],
    ids=str,
)
def test_contributions_that_do_not_fit_are_refused(entry):
    with pytest.raises(BiremeError):
        check_dense(SHAPE, entry)


def test_codes_are_of_float32():
    with pytest.raises(UnsupportedError, match="fits float32 keys only"):
        check_dense(SlotShape(torch.float64, 4, 2), PushEntry(1, 0, 0, 8, "fp16"))


def push_rows(*ids):
    content = torch.ones(len(ids), 2)
    payload = bytes(raw(torch.tensor(ids, dtype=torch.int64))) + bytes(raw(content))
    return PushEntry(1, 0, 0, len(payload), "raw", Layout.ROWS, len(ids)), memoryview(payload)


@pytest.mark.parametrize("ids", [(), (1,), (1, 0, 1)])
def test_rows_of_the_slot_are_taken(ids):
    check_rows(SHAPE, *push_rows(*ids), 0)


def test_rows_may_begin_anywhere_in_a_payload():
    entry, payload = push_rows(0, 1)
    check_rows(SHAPE, entry, memoryview(bytes(8) + bytes(payload)), 8)


@pytest.mark.parametrize(
    "entry",
    [
        PushEntry(1, 0, 0, 16, "raw", Layout.ROWS, 3),
        PushEntry(1, 0, 0, 16, "2bit:0.5", Layout.ROWS, 1),
    ],
    ids=str,
)
def test_rows_of_another_form_are_refused(entry):
    with pytest.raises(ConfigError, match="raw rows have"):
        check_rows(SHAPE, entry, raw(torch.zeros(4)), 0)


@pytest.mark.parametrize("ids", [(0, 2), (-1,)])
def test_rows_out_of_range_are_refused(ids):
    with pytest.raises(ConfigError, match="rows 0 to 1"):
        check_rows(SHAPE, *push_rows(*ids), 0)
    with pytest.raises(ConfigError, match="rows 0 to 1"):
        check_row_numbers(SHAPE, torch.tensor(ids))
