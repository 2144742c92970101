import pytest
import torch
from tests.node.test_cells import Plain, shown, total

from bireme.errors import ConfigError, UnsupportedError
from bireme.node.cells import Cell
from bireme.node.partials import DensePartial, SlotShape
from bireme.node.updates import StoreUpdater
from bireme.update import OptimizerSpec, to_body


def body(name, _ids=None, **params):
    return to_body(OptimizerSpec(name, params), _ids or {})


def make_cell(slot=(1, 0), dtype=torch.float32, length=4, row_length=2):
    cell = Cell(0, slot, SlotShape(dtype, length, row_length), None, Plain)
    cell.fill(None)
    return cell


def test_sums_go_to_the_optimizer_and_its_state_stays():
    updater, cell = StoreUpdater(body("sgd", lr=1.0, momentum=0.5)), make_cell()
    updater.apply(cell, total(cell, [1.0, 2.0, 3.0, 4.0]))
    assert updater.replace(body("sgd", lr=0.5, momentum=0.5))
    updater.apply(cell, total(cell, [1.0, 2.0, 3.0, 4.0]))
    assert shown(cell) == [-1.75, -3.5, -5.25, -7.0]
    assert not updater.replace(body("adam"))


def test_states_move_to_another_server():
    one, other = (StoreUpdater(body("adam", lr=0.5)) for _ in range(2))
    first, second = make_cell(), make_cell()
    one.apply(first, total(first, [1.0, 2.0, 3.0, 4.0]))
    states = one.states({(1, 0), (9, 0)})
    assert list(states) == [(1, 0)]
    flat = {
        name: each.clone().reshape(-1) if each.dim() else each.clone()
        for name, each in states[1, 0].items()
    }
    second.overwrite(first.value)
    other.add_states({(1, 0): flat}, {(1, 0): second})
    for updater, cell in ((one, first), (other, second)):
        updater.apply(cell, total(cell, [4.0, -2.0, 0.0, 1.0]))
    assert shown(first) == shown(second)
    other.forget_states()
    assert other.states({(1, 0)}) == {}


def test_states_of_unknown_slots_change_nothing():
    updater, cell = StoreUpdater(body("adam")), make_cell()
    with pytest.raises(ConfigError, match=r"slot 5\.0 is not here"):
        updater.add_states({(1, 0): {"step": torch.tensor(1.0)}, (5, 0): {}}, {(1, 0): cell})
    assert updater.states({(1, 0)}) == {}


def test_what_an_optimizer_cannot_do_is_refused_before():
    updater = StoreUpdater(body("adam"))
    updater.check(make_cell(), rows=False)
    with pytest.raises(UnsupportedError, match="row-sparse"):
        updater.check(make_cell(), rows=True)
    with pytest.raises(ConfigError, match="int32"):
        updater.check(make_cell(dtype=torch.int32), rows=False)
    with pytest.raises(ConfigError):
        StoreUpdater({"name": "adam"})
    with pytest.raises(ConfigError):
        StoreUpdater({"name": "os.system", "params": {}, "rescale_grad": 1.0, "own": []})


def test_a_failure_of_torch_is_an_error_of_ours():
    updater, cell = StoreUpdater(body("adam")), make_cell()
    updater.apply(cell, total(cell, [1.0] * 4))
    updater.add_states({(1, 0): {"step": torch.tensor(1.0)}}, {(1, 0): cell})
    with pytest.raises(ConfigError, match="Adam failed"):
        updater.apply(cell, total(cell, [1.0] * 4))


def test_keys_have_numbers_of_their_own():
    spec = OptimizerSpec("sgd", {"lr": 1.0}, lr_mult={"b": 3.0})
    updater = StoreUpdater(to_body(spec, {"a": 1, "b": 2}))
    for slot, expected in (((1, 0), -1.0), ((2, 5), -3.0)):
        cell = make_cell(slot, length=1, row_length=1)
        partial = DensePartial.alone(cell.shape, Plain)
        partial.tensor.fill_(1)
        updater.apply(cell, partial)
        assert shown(cell) == [expected]
