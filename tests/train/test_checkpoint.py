import json
import zlib

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from bireme.errors import ConfigError, DataError, UnsupportedError
from bireme.train.checkpoint import Checkpoint, read, write


def checkpoint_of(net, epoch=3, training=None):
    return Checkpoint(epoch=epoch, net_class="a:B", net_state=net.state_dict(), training=training)


def test_everything_comes_back(tmp_path):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    training = {"state": {0: {"momentum": torch.ones(2), "betas": (0.9, 0.99)}}, "lr": 0.1}
    write(tmp_path / "net", checkpoint_of(net, training=training))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["net-0003.json", "net-0003.optimizer.safetensors", "net-0003.safetensors"]
    saved = read(tmp_path / "net", 3)
    assert (saved.epoch, saved.net_class) == (3, "a:B")
    assert saved.net_state.keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        assert torch.equal(saved.net_state[name], value)
        assert saved.net_state[name].dtype == value.dtype
    assert saved.training["state"][0]["betas"] == (0.9, 0.99)
    assert read(tmp_path / "net", 3, with_training=False).training is None


def test_other_programs_can_read_the_net(tmp_path):
    net = nn.Linear(2, 3)
    write(tmp_path / "net", checkpoint_of(net))
    assert torch.equal(load_file(tmp_path / "net-0003.safetensors")["weight"], net.weight)


def test_tied_and_overlapping_parameters(tmp_path):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    whole = torch.arange(4.0)
    net.register_buffer("front", whole[:2])
    net.register_buffer("back", whole[2:])
    net.register_buffer("empty", torch.zeros(0))
    net.register_buffer("also_empty", torch.zeros(0))
    write(tmp_path / "net", checkpoint_of(net))
    assert "1.weight" not in load_file(tmp_path / "net-0003.safetensors")
    state = read(tmp_path / "net", 3).net_state
    assert torch.equal(state["1.weight"], net[0].weight)
    assert state["back"].tolist() == [2, 3]
    net.load_state_dict(state)


def test_plain_extra_state_is_kept_and_other_is_refused(tmp_path):
    class Extra(nn.Linear):
        extra = None

        def get_extra_state(self):
            return self.extra

    Extra.extra = {"seen": [1, 2]}
    write(tmp_path / "net", checkpoint_of(Extra(1, 1)))
    assert read(tmp_path / "net", 3).net_state["_extra_state"] == {"seen": [1, 2]}
    Extra.extra = print
    with pytest.raises(UnsupportedError, match="_extra_state is a builtin"):
        write(tmp_path / "other", checkpoint_of(Extra(1, 1)))
    Extra.extra = [torch.ones(1)]
    with pytest.raises(UnsupportedError, match="mixes tensors"):
        write(tmp_path / "other", checkpoint_of(Extra(1, 1)))
    assert not list(tmp_path.glob("other*"))


def test_a_save_without_training_removes_an_older_one(tmp_path):
    write(tmp_path / "net", checkpoint_of(nn.Linear(1, 1), training={"lr": 1}))
    write(tmp_path / "net", checkpoint_of(nn.Linear(1, 1)))
    assert not list(tmp_path.glob("*.optimizer.*"))
    assert read(tmp_path / "net", 3).training is None


def test_folders_are_made_and_no_temporary_file_stays(tmp_path):
    write(tmp_path / "a" / "b" / "net", checkpoint_of(nn.Linear(1, 1)))
    assert len(list((tmp_path / "a" / "b").iterdir())) == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot make folder"):
        write(tmp_path / "file" / "net", checkpoint_of(nn.Linear(1, 1)))
    for wrong in (-1, "3", True, 2.0):
        with pytest.raises(ConfigError, match="epoch must be an integer >= 0"):
            write(tmp_path / "net", checkpoint_of(nn.Linear(1, 1), epoch=wrong))
        with pytest.raises(ConfigError, match="epoch must be an integer >= 0"):
            read(tmp_path / "net", wrong)


@pytest.fixture
def saved(tmp_path):
    write(tmp_path / "net", checkpoint_of(nn.Linear(4, 4), training={"m": torch.ones(9)}))
    return tmp_path


@pytest.mark.parametrize("name", ["net-0003.safetensors", "net-0003.optimizer.safetensors"])
def test_damage_is_noticed(saved, name):
    path = saved / name
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    with pytest.raises(DataError, match=f"{name} has .* bytes instead of .*truncated"):
        read(saved / "net", 3)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match=f"{name} is corrupt or of another save"):
        read(saved / "net", 3)
    path.unlink()
    with pytest.raises(DataError, match=f"cannot read .*{name}: No such file"):
        read(saved / "net", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON: truncated"),
        ("[]", "no bireme-checkpoint"),
        ('{"format": "other"}', "no bireme-checkpoint"),
        ('{"format": "bireme-checkpoint", "version": 99}', "version 99; this release reads 1"),
        ('{"format": "bireme-checkpoint", "version": 1}', "lacks or garbles an entry"),
    ],
)
def test_a_damaged_description_is_noticed(saved, text, message):
    (saved / "net-0003.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read(saved / "net", 3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.eye(2).to_sparse(), "odd is a tensor of layout torch.sparse_coo"),
        (torch.ones(2, device="meta"), "odd is a tensor on the meta device"),
        (torch.ones(2, dtype=torch.complex128), "safetensors cannot hold"),
    ],
)
def test_tensors_that_no_file_can_hold_are_refused(tmp_path, value, message):
    net = nn.Linear(1, 1)
    net.register_buffer("odd", value)
    with pytest.raises(UnsupportedError, match=message):
        write(tmp_path / "net", checkpoint_of(net))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_safetensors_is_named(saved):
    path, meta_path = saved / "net-0003.safetensors", saved / "net-0003.json"
    meta = json.loads(meta_path.read_text())
    path.write_bytes(b"other")
    meta["files"][0] = {"size": 5, "crc32": zlib.crc32(b"other")}
    meta_path.write_text(json.dumps(meta))
    with pytest.raises(DataError, match="is no safetensors file"):
        read(saved / "net", 3)


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read checkpoint .*net-0007\.json"):
        read(tmp_path / "net", 7)


def test_garbled_entries_are_noticed(saved):
    path = saved / "net-0003.json"
    meta = json.loads(path.read_text())
    meta["tied"] = {"weight2": "absent"}
    path.write_text(json.dumps(meta))
    with pytest.raises(DataError, match="garbles"):
        read(saved / "net", 3)


@pytest.mark.parametrize("prefix", ["", "out/", ".", "..", "a/..", None, 3, b"net"])
def test_a_prefix_names_a_file(prefix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = Checkpoint(epoch=0, net_class="x:Y", net_state={})
    for call in (lambda: write(prefix, content), lambda: read(prefix, 0)):
        with pytest.raises(ConfigError, match="a checkpoint's prefix is"):
            call()
    assert list(tmp_path.iterdir()) == []
