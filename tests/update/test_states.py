import json
import os

import pytest
import torch
from safetensors.torch import save_file

from bireme.errors import ConfigError, DataError, UnsupportedError
from bireme.kvstore import OptimizerSpec
from bireme.update import states

SPEC = OptimizerSpec("adam")
ROWS = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (3, 2), check_invariants=True).coalesce()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "states.safetensors")


@pytest.mark.parametrize("key", [3, "a/b.c", "", "3"])
def test_round_trip(path, key):
    state = {
        "step": torch.tensor(3.0),
        "moment": torch.randn(3, 2).T,
        "count": 4,
        "none": None,
        "flag": True,
    }
    value = torch.zeros(2, 3)
    states.save(path, SPEC, {key: state})
    loaded = states.load(path, SPEC, {key: value})
    assert list(loaded) == [key]
    assert torch.equal(loaded[key]["moment"], state["moment"])
    assert loaded[key]["step"] == 3
    assert (loaded[key]["count"], loaded[key]["none"], loaded[key]["flag"]) == (4, None, True)


def test_row_sparse_state(path):
    states.save(path, SPEC, {"k": {"buffer": ROWS}})
    buffer = states.load(path, SPEC, {"k": torch.zeros(3, 2)})["k"]["buffer"]
    assert buffer.is_sparse
    assert torch.equal(buffer.to_dense(), ROWS.to_dense())


def test_tensors_that_share_memory(path):
    shared = torch.ones(2)
    states.save(path, SPEC, {0: {"m": shared}, 1: {"m": shared}})
    loaded = states.load(path, SPEC, {0: torch.zeros(2), 1: torch.zeros(2)})
    assert loaded[1]["m"].tolist() == [1, 1]


def test_nothing_to_save(path):
    states.save(path, SPEC, {})
    assert states.load(path, SPEC, {}) == {}


def test_failed_save_keeps_the_old_file(path, tmp_path):
    states.save(path, SPEC, {0: {"m": torch.ones(2)}})
    with pytest.raises(UnsupportedError, match=r"0\.m of type object"):
        states.save(path, SPEC, {0: {"m": object()}})
    assert states.load(path, SPEC, {0: torch.zeros(2)})[0]["m"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == [os.path.basename(path)]


def test_failed_rename_leaves_no_litter(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        states.save(str(tmp_path / "folder"), SPEC, {})
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_has_the_permissions_of_any_new_file(path, tmp_path):
    states.save(path, SPEC, {"w": {"step": 1}})
    (tmp_path / "other").touch()
    assert os.stat(path).st_mode == (tmp_path / "other").stat().st_mode


def test_missing_file(path):
    with pytest.raises(FileNotFoundError):
        states.load(path, SPEC, {})


def test_truncated_file(path):
    states.save(path, SPEC, {0: {"m": torch.ones(200)}})
    with open(path, "r+b") as file:
        file.truncate(400)
    with pytest.raises(DataError, match="no readable file"):
        states.load(path, SPEC, {0: torch.zeros(200)})


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"bireme": "[]"},
        {"bireme": "{"},
        {"bireme": json.dumps({"format": "other"})},
        {"bireme": json.dumps({"format": states.FORMAT})},
        {"bireme": json.dumps({"format": states.FORMAT, "optimizer": "Adam", "keys": [3]})},
        {
            "bireme": json.dumps(
                {
                    "format": states.FORMAT,
                    "optimizer": "Adam",
                    "keys": [{"key": 0, "state": {"m": {"tensor": "gone"}}}],
                }
            )
        },
    ],
)
def test_other_formats(path, metadata):
    save_file({"x": torch.ones(1)}, path, metadata=metadata)
    with pytest.raises(DataError):
        states.load(path, SPEC, {0: torch.zeros(1)})


def test_other_optimizer_key_or_shape(path):
    states.save(path, SPEC, {0: {"m": torch.ones(2)}})
    with pytest.raises(ConfigError, match="Adam, but the store runs SGD"):
        states.load(path, OptimizerSpec("sgd"), {0: torch.zeros(2)})
    with pytest.raises(ConfigError, match="key 0, which the store does not have"):
        states.load(path, SPEC, {1: torch.zeros(2)})
    with pytest.raises(ConfigError, match=r"shape \(2,\), but .* \(3,\)"):
        states.load(path, SPEC, {0: torch.zeros(3)})


def test_factored_moments_fit_their_value(path):
    states.save(path, SPEC, {0: {"row": torch.ones(3, 1), "column": torch.ones(1, 2)}})
    assert set(states.load(path, SPEC, {0: torch.zeros(3, 2)})[0]) == {"row", "column"}
