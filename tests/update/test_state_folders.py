"""Folders of states: parts by servers, an index by the worker that saves."""

import json
import os

import pytest
import torch

from bireme.errors import ConfigError, DataError
from bireme.kvstore import LocalStore, OptimizerSpec
from bireme.update import state_folders, states

SPEC = OptimizerSpec("sgd", {"momentum": 0.5})


def save(folder, parts, keys):
    """Save as servers and a worker do; ``parts`` has one state by slot for each server."""
    token = state_folders.new_token()
    files = [
        state_folders.write_part(
            str(folder), token, lambda path, p=part: states.save(path, SPEC, p)
        )
        for part in parts
    ]
    state_folders.write_index(str(folder), SPEC.name, states.numbers_of(SPEC), files, keys)
    return files


def one(folder, number):
    return save(
        folder, [{"0.0": {"m": torch.full((2,), float(number))}}], [("w", (2,), [["0.0", 2]])]
    )


def found(folder):
    return states.read(str(folder)).states["w"]["m"].tolist()


def test_parts_are_joined(tmp_path):
    parts = [
        {"7.0": {"m": torch.ones(2), "step": 3}, "8.0": {"m": torch.full((2, 1), 5.0), "step": 1}},
        {"7.1": {"m": torch.zeros(4), "step": 3}},
        {},
    ]
    keys = [
        ("a", (2, 3), [("7.0", 2), ("7.1", 4)]),
        (3, (2, 1), [("8.0", 2)]),
        ("never", (2,), [("9.0", 2)]),
    ]
    save(tmp_path, parts, keys)
    content = states.read(tmp_path)
    assert content.optimizer == "SGD"
    assert content.numbers_of("a")["momentum"] == 0.5
    assert list(content.states) == ["a", 3]
    assert content.states["a"]["m"].tolist() == [[1, 1, 0], [0, 0, 0]]
    assert content.states["a"]["step"] == 3
    assert content.states[3]["m"].tolist() == [[5], [5]]


def test_a_part_without_state_counts_as_zeros():
    whole = state_folders.joined((4,), [1, 3], [{}, {"m": torch.ones(3), "n": 2}])
    assert whole["m"].tolist() == [0, 1, 1, 1]
    assert whole["n"] == 2
    assert state_folders.joined((4,), [1, 3], [{}, {}]) == {}


def test_the_old_content_stays_until_the_index_is_replaced(tmp_path, monkeypatch):
    first = one(tmp_path, 1)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            one(tmp_path, 2)
    assert found(tmp_path) == [1, 1]
    (tmp_path / ".states-0123456789abcdef.tmp").touch()
    (tmp_path / "mine.safetensors").touch()
    second = one(tmp_path, 3)
    assert found(tmp_path) == [3, 3]
    assert first != second
    assert sorted(os.listdir(tmp_path)) == sorted([*second, "index.json", "mine.safetensors"])


def test_servers_refuse_odd_places(tmp_path):
    def never(_):
        raise AssertionError

    token = state_folders.new_token()
    for folder in ("relative", str(tmp_path / "gone"), "", None, 7):
        with pytest.raises(ConfigError, match="share"):
            state_folders.write_part(folder, token, never)
    for odd in ("../../x", "", "0" * 15, "0" * 16 + "/", None):
        with pytest.raises(ConfigError, match="cannot be named"):
            state_folders.write_part(str(tmp_path), odd, never)


def test_parts_that_are_not_here(tmp_path):
    with pytest.raises(ConfigError, match="that is not this one"):
        state_folders.write_index(str(tmp_path), "SGD", {}, ["states-x.safetensors"], [])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"files": ["../../etc/passwd"]},
        {"files": ["states-0123456789abcdef-01234567.safetensors"]},
        {"files": 3},
        {"keys": [3]},
        {"keys": [{"key": "w", "shape": [9], "slots": [["0.0", 1], ["0.1", 1]]}]},
        None,
    ],
)
def test_a_broken_index(tmp_path, change):
    one(tmp_path, 1)
    index = json.loads((tmp_path / "index.json").read_text())
    text = "{" if change is None else json.dumps({**index, **change})
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(DataError):
        states.read(tmp_path)


def test_a_folder_without_an_index(tmp_path):
    with pytest.raises(FileNotFoundError):
        states.read(tmp_path)


def test_what_names_a_folder(tmp_path):
    assert state_folders.names_folder(tmp_path)
    assert state_folders.names_folder(f"{tmp_path}/new/")
    assert not state_folders.names_folder(f"{tmp_path}/new")


@pytest.mark.parametrize("key", ["a/b", 3])
def test_stores_in_one_process_write_folders_too(tmp_path, key):
    path = f"{tmp_path}/new/"
    for _ in range(2):
        store = LocalStore()
        store.init(key, torch.zeros(2, 2))
        store.set_optimizer(SPEC)
        store.push(key, torch.ones(2, 2))
        store.save_optimizer_states(path)
    store.push(key, torch.ones(2, 2))
    store.load_optimizer_states(path)
    assert store.optimizer_states()[key]["momentum_buffer"].tolist() == [[1, 1], [1, 1]]
    assert len(os.listdir(path)) == 2
