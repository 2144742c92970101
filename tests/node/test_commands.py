import pytest
import torch
from tests.node.test_cells import shown, total
from tests.node.test_updates import body, make_cell

from bireme.errors import BiremeError, ConfigError, StateError, UnsupportedError
from bireme.node.commands import StoreCommands
from bireme.node.pieces import pack, unpack
from bireme.update import states as files
from bireme.wire.messages import CommandKind

SET, SAVE, LOAD = CommandKind.SET_OPTIMIZER, CommandKind.SAVE_STATE, CommandKind.LOAD_STATE
NOTHING = memoryview(b"")


@pytest.fixture
def cell():
    cell = make_cell()
    cell.fill(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return cell


@pytest.fixture
def commands(cell):
    return StoreCommands({(1, 0): cell})


def packed(*states):
    return memoryview(pack(dict(states)))


def test_optimizers_come_change_and_go(commands, cell):
    commands.obey(0, SET, body("sgd", lr=1.0), NOTHING)
    assert list(commands.updaters) == [0]
    commands.updaters[0].apply(cell, total(cell, [1.0] * 4))
    assert shown(cell) == [0, 1, 2, 3]
    commands.obey(0, SET, body("sgd", lr=2.0), NOTHING)
    commands.updaters[0].apply(cell, total(cell, [1.0] * 4))
    assert shown(cell) == [-2, -1, 0, 1]
    commands.obey(0, SET, {}, NOTHING)
    assert commands.updaters == {}
    assert cell.param is None


def test_states_are_saved_and_loaded(commands, cell):
    with pytest.raises(StateError, match="set_optimizer first"):
        commands.obey(0, SAVE, {"slots": []}, NOTHING)
    commands.obey(0, SET, body("sgd", momentum=0.5), NOTHING)
    commands.updaters[0].apply(cell, total(cell, [1.0] * 4))
    _, held, size = commands.obey(0, SAVE, {"slots": [[1, 0]]}, NOTHING)
    assert size == held.view.nbytes
    assert unpack(bytes(held.view))[1, 0]["momentum_buffer"].tolist() == [[1, 1], [1, 1]]
    new = packed(((1, 0), {"momentum_buffer": torch.full((4,), 3.0)}))
    commands.obey(0, LOAD, {"first": True}, new)
    _, held, _ = commands.obey(0, SAVE, {"slots": [[1, 0]]}, NOTHING)
    assert unpack(bytes(held.view))[1, 0]["momentum_buffer"].tolist() == [[3, 3], [3, 3]]


def test_values_are_overwritten_all_or_none(commands, cell):
    good, bad = {"value": torch.arange(4.0)}, {"value": torch.arange(3.0)}
    for wrong in (packed(((1, 0), bad)), packed(((1, 0), good), ((2, 0), good))):
        with pytest.raises(ConfigError):
            commands.obey(0, LOAD, {"values": True}, wrong)
    with pytest.raises(ConfigError, match="is not here"):
        commands.obey(1, LOAD, {"values": True}, packed(((1, 0), good)))
    assert shown(cell) == [1, 2, 3, 4]
    commands.obey(0, LOAD, {"values": True}, packed(((1, 0), good)))
    assert shown(cell) == [0, 1, 2, 3]


def test_commands_that_cannot_be_read(commands):
    commands.obey(0, SET, body("sgd"), NOTHING)
    for kind, what, payload in (
        (SAVE, {}, NOTHING),
        (SAVE, {"slots": 3}, NOTHING),
        (LOAD, {}, memoryview(b"junk")),
        (SET, {"name": "SGD"}, NOTHING),
    ):
        with pytest.raises(BiremeError):
            commands.obey(0, kind, what, payload)
    with pytest.raises(UnsupportedError):
        commands.obey(0, CommandKind.SET_HYPER_PARAMETERS, {}, NOTHING)


def test_a_server_writes_its_part_of_a_folder(commands, cell, tmp_path):
    commands.obey(0, SET, body("adam"), NOTHING)
    commands.updaters[0].apply(cell, total(cell, [1.0] * 4))
    where = {"folder": str(tmp_path), "token": "0123456789abcdef"}
    answer, _, _ = commands.obey(0, SAVE, where, NOTHING)
    content = files.read(tmp_path / answer["file"])
    assert content.optimizer == "Adam"
    assert list(content.states) == ["1.0"]
    for change in ({"folder": "/no/such/folder"}, {"token": "../x"}, {"token": None}):
        with pytest.raises(ConfigError):
            commands.obey(0, SAVE, {**where, **change}, NOTHING)
    with pytest.raises(StateError, match="no optimizer"):
        commands.obey(9, SAVE, where, NOTHING)
    assert len(list(tmp_path.iterdir())) == 1
