import pytest
import torch
from tests.node.test_cells import Plain
from tests.node.test_partials import raw

from bireme.errors import ConfigError, UnsupportedError
from bireme.node.memory import tensor_over
from bireme.node.pieces import pack
from bireme.node.values import TorchSlotValues
from bireme.transport.base import ReceivedFrame
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.update import OptimizerSpec, to_body
from bireme.wire.messages import CommandKind, InitEntry, PushEntry


class Adoptable(ReceivedFrame):
    """A frame whose payload is its receiver's alone."""

    def __init__(self, payload):
        memory = memoryview(bytearray(payload))
        super().__init__(b"", memory, lambda _: None, lambda _: Kept(memory))


class Kept:
    def __init__(self, view):
        self.view = view

    def release(self):
        pass


class Received:
    def __init__(self, payload):
        self.payload = payload

    def release(self):
        pass


@pytest.fixture
def values():
    return TorchSlotValues(Plain)


def init(values, slot=(1, 0), value=(1.0, 2.0, 3.0, 4.0), row_length=2, store=0):
    payload = raw(torch.tensor(value))
    entry = InitEntry(
        *slot,
        DType("float32"),
        len(value),
        row_length,
        Layout.DENSE,
        Consistency.SYNC,
        len(payload),
    )
    values.check_init(entry)
    return values.initialise(store, entry, Received(payload), 0)


def dense(values, cell, numbers):
    payload = raw(torch.tensor(numbers))
    entry = PushEntry(1, 0, 0, len(payload))
    values.check_push(cell, entry, Received(payload), 0)
    return values.first(cell, entry, Received(payload), 0, 1.0)


def rows(ids, fill):
    content = torch.full((len(ids), 2), float(fill))
    payload = memoryview(bytes(raw(torch.tensor(ids, dtype=torch.int64))) + bytes(raw(content)))
    return PushEntry(1, 0, 0, len(payload), "raw", Layout.ROWS, len(ids)), Received(payload)


def shown(values, cell):
    held, size, _ = values.read(cell)
    return tensor_over(held.view, torch.float32, size // 4).tolist()


def test_rows_and_dense_values_are_summed_in_any_order(values):
    cell = init(values)
    for order in (0, 1):
        entry, payload = rows([1], 10)
        if order:
            partial = dense(values, cell, [1.0] * 4)
            partial = values.add(cell, partial, entry, payload, 0, 1.0)
        else:
            partial = values.first(cell, entry, payload, 0, 1.0)
            partial = values.merge(partial, dense(values, cell, [1.0] * 4))
        values.finish(cell, partial, 1.0, 1.0, 1)
        assert shown(values, cell) == [1, 1, 11, 11]


def test_rows_alone_replace_the_whole_value(values):
    cell = init(values)
    entry, payload = rows([1], 5)
    values.finish(cell, values.first(cell, entry, payload, 0, 1.0), 1.0, 2.0, 1)
    assert shown(values, cell) == [0, 0, 2.5, 2.5]


def test_reading_rows(values):
    cell = init(values)
    ids = Received(raw(torch.tensor([1, 0, 1])))
    held, size = values.read_rows(cell, ids, 3)
    assert tensor_over(held.view, torch.float32, size // 4).tolist() == [3, 4, 1, 2, 3, 4]
    for bad in (-1, 2):
        with pytest.raises(ConfigError, match="row numbers"):
            values.read_rows(cell, Received(raw(torch.tensor([bad]))), 1)


def test_what_does_not_fit_is_refused_before_it_is_applied(values):
    long = InitEntry(1, 0, DType("float32"), 4, 2, Layout.DENSE, Consistency.SYNC, 15)
    with pytest.raises(ConfigError, match="15 bytes instead of 16"):
        values.check_init(long)
    cell = init(values)
    values.command(0, CommandKind.SET_OPTIMIZER, to_body(OptimizerSpec("adam"), {}), None)
    nothing = Received(raw(torch.zeros(4)))
    for entry in (PushEntry(1, 0, 0, 12), PushEntry(1, 0, 0, 16, "raw", Layout.ROWS, 3)):
        with pytest.raises(ConfigError):
            values.check_push(cell, entry, nothing, 0)
    with pytest.raises(UnsupportedError, match="row-sparse"):
        values.check_push(cell, *rows([0, 1], 1), 0)


def test_without_a_first_value_a_slot_is_zero(values):
    entry = InitEntry(1, 0, DType("float32"), 4, 2, Layout.DENSE, Consistency.SYNC, 0)
    assert shown(values, values.initialise(0, entry, None, 0)) == [0, 0, 0, 0]


def test_optimizers_come_change_and_go(values):
    cell = init(values)
    body = to_body(OptimizerSpec("sgd", {"lr": 1.0}), {})
    assert not values.can_update(0)
    values.command(0, CommandKind.SET_OPTIMIZER, body, None)
    assert values.can_update(0)
    assert not values.can_update(1)
    values.finish(cell, dense(values, cell, [1.0] * 4), 1.0, 1.0, 1)
    assert shown(values, cell) == [0, 1, 2, 3]
    values.command(0, CommandKind.SET_OPTIMIZER, {}, None)
    values.finish(cell, dense(values, cell, [7.0] * 4), 1.0, 1.0, 2)
    assert shown(values, cell) == [7] * 4


def test_what_a_command_overwrites_is_read(values):
    cell = init(values)
    piece = Received(memoryview(pack({(1, 0): {"value": torch.arange(4.0)}})))
    assert values.command(0, CommandKind.LOAD_STATE, {"values": True}, piece) == ({}, None, 0)
    assert shown(values, cell) == [0, 1, 2, 3]


def test_what_weighs_nothing_moves_no_optimizer(values):
    spec = OptimizerSpec("sgd", {"lr": 1.0, "weight_decay": 0.5})
    values.command(0, CommandKind.SET_OPTIMIZER, to_body(spec, {}), None)
    cell = init(values)
    values.finish(cell, dense(values, cell, [1.0, 1.0, 1.0, 1.0]), 0.0, 1.0, 1)
    assert shown(values, cell) == [1.0, 2.0, 3.0, 4.0]
    values.finish(cell, dense(values, cell, [1.0, 1.0, 1.0, 1.0]), 1.0, 1.0, 2)
    assert shown(values, cell) == [-0.5, 0.0, 0.5, 1.0]


def cast_push(values, numbers, encoding="fp16"):
    element = {"fp16": torch.float16, "bf16": torch.bfloat16, "raw": torch.float32}[encoding]
    payload = raw(torch.tensor(numbers).to(element))
    return PushEntry(1, 0, 0, len(payload), encoding), Received(payload)


def summed(values, cell, *pushes, weights=None, merged=False):
    total = None
    for (entry, frame), weight in zip(pushes, weights or [1.0] * len(pushes), strict=True):
        values.check_push(cell, entry, frame, 0)
        if total is None:
            total = values.first(cell, entry, frame, 0, weight)
        elif merged:
            total = values.merge(total, values.first(cell, entry, frame, 0, weight))
        else:
            total = values.add(cell, total, entry, frame, 0, weight)
    values.finish(cell, total, 1.0, 1.0, 1)


A = [1.0, 1e-3, 3000.25, -0.1]
B = [2.0**-11, 2e-3, 0.5, 0.3]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    ("encoding", "element"), [("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_sums_of_casts_are_rounded_once_and_answered_in_16_bits(values, encoding, element, merged):
    cell = init(values)
    pushes = [cast_push(values, numbers, encoding) for numbers in (A, B)]
    summed(values, cell, *pushes, merged=merged)
    # Each gradient is rounded by its worker, their float32 sum by the server.
    one, two = (torch.tensor(each).to(element).float() for each in (A, B))
    wanted = (one + two).to(element)
    held, size, answered = values.read(cell)
    assert (size, answered) == (8, encoding)
    assert tensor_over(held.view, element, 4).tolist() == wanted.tolist()
    # Whoever reads rows, or more than this answer, sees the same numbers.
    assert cell.value.tolist() == wanted.float().tolist()


def test_weights_count_before_the_sum_is_rounded(values):
    cell = init(values)
    summed(values, cell, cast_push(values, A), cast_push(values, B), weights=[0.3, 0.7])
    one, two = (torch.tensor(each).half().float() for each in (A, B))
    assert cell.value.tolist() == (one * 0.3 + two * 0.7).half().float().tolist()


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("others", ["raw", "bf16"])
def test_mixed_pushes_are_answered_in_full(values, others, merged):
    cell = init(values)
    pushes = cast_push(values, A), cast_push(values, B, others)
    summed(values, cell, *pushes, merged=merged)
    assert values.read(cell)[1:] == (16, "raw")
    summed(values, cell, *reversed(pushes), merged=merged)
    assert values.read(cell)[1:] == (16, "raw")


def test_weights_of_an_optimizer_are_never_rounded(values):
    cell = init(values)
    body = to_body(OptimizerSpec("sgd", {"lr": 1.0}), {})
    values.command(0, CommandKind.SET_OPTIMIZER, body, None)
    summed(values, cell, cast_push(values, [2.0**-14] * 4), cast_push(values, [2.0**-14] * 4))
    assert values.read(cell)[2] == "raw"
    assert shown(values, cell) == [value - 2.0**-13 for value in (1.0, 2.0, 3.0, 4.0)]


def test_a_value_that_changes_otherwise_is_answered_in_full_again(values):
    cell = init(values)
    summed(values, cell, cast_push(values, A))
    kept = values.read(cell)[0]
    kept.retain()
    before = bytes(kept.view)
    cell.overwrite(torch.full((4,), 0.1))
    assert values.read(cell)[2] == "raw"
    assert shown(values, cell) == [torch.tensor(0.1).item()] * 4
    # What is on its way does not change.
    assert bytes(kept.view) == before
    summed(values, cell, cast_push(values, B))
    assert values.read(cell)[2] == "fp16"
    summed(values, cell, cast_push(values, B, "raw"))
    assert values.read(cell)[2] == "raw"
    assert shown(values, cell) == torch.tensor(B).tolist()


def test_a_sum_beyond_the_cast_is_infinite(values):
    cell = init(values)
    summed(values, cell, cast_push(values, [6e4] * 4), cast_push(values, [6e4] * 4))
    assert cell.value.tolist() == [float("inf")] * 4


@pytest.mark.parametrize(("length", "in_place"), [(4, False), (1 << 16, True)])
def test_a_large_sum_begins_where_its_first_contribution_came(values, length, in_place):
    cell = init(values, value=(0.0,) * length)
    frame = Adoptable(raw(torch.arange(float(length))))
    entry = PushEntry(1, 0, 0, 4 * length)
    total = values.first(cell, entry, frame, 0, 1.0)
    total = values.add(cell, total, entry, Adoptable(raw(torch.ones(length))), 0, 1.0)
    came = tensor_over(frame.payload, torch.float32, length)
    assert (came[1].item() == 2.0) is in_place
    values.finish(cell, total, 1.0, 1.0, 1)
    assert shown(values, cell)[:3] == [1.0, 2.0, 3.0]


def test_what_is_weighed_is_not_changed_where_it_came(values):
    cell = init(values, value=(0.0,) * (1 << 16))
    frame = Adoptable(raw(torch.ones(1 << 16)))
    values.first(cell, PushEntry(1, 0, 0, 4 << 16), frame, 0, 0.5)
    assert tensor_over(frame.payload, torch.float32, 2).tolist() == [1.0, 1.0]
