"""A folder arrives on another host as it is here, but for what is not worth copying."""

import os

import pytest

from bireme.errors import ConfigError
from bireme.launch.syncing import Unpacker, archive_of


def copied(source, target, piece_bytes=1000):
    with archive_of(source) as archive, Unpacker(str(target)) as unpacker:
        data = archive.read_bytes()
        for start in range(0, len(data), piece_bytes):
            unpacker.put(data[start : start + piece_bytes])
        unpacker.finish()
    assert not archive.exists()
    return unpacker.folder


def test_a_folder(tmp_path):
    source = tmp_path / "source"
    (source / "sub" / "__pycache__").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / "train.py").write_text("print('x')\n")
    (source / "train.py").chmod(0o755)
    (source / "sub" / "it's \u00e4").write_bytes(os.urandom(5000))
    (source / "data").symlink_to("/mnt/data")
    os.mkfifo(source / "pipe")
    target = tmp_path / "a" / "target"
    target.mkdir(parents=True)
    (target / "train.py").write_text("old")
    (target / "results").write_text("kept")
    assert copied(source, target) == target
    assert sorted(os.listdir(target)) == ["data", "results", "sub", "train.py"]
    assert os.listdir(target / "sub") == ["it's \u00e4"]
    assert (target / "sub" / "it's \u00e4").read_bytes() == (
        source / "sub" / "it's \u00e4"
    ).read_bytes()
    assert (target / "train.py").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "data") == "/mnt/data"


def test_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Unpacker("project/copy") as one, Unpacker("~/copy") as two, Unpacker("/tmp/x") as three:
        assert one.folder == tmp_path / "project" / "copy"
        assert two.folder == tmp_path / "copy"
        assert str(three.folder) == "/tmp/x"


def test_what_cannot_be_copied(tmp_path):
    with pytest.raises(ConfigError, match="cannot copy"), archive_of(tmp_path / "none"):
        pass
    (tmp_path / "file").write_text("")
    with Unpacker(str(tmp_path / "file")) as unpacker:
        with pytest.raises(ConfigError, match="cannot copy files to"):
            unpacker.finish()
    with Unpacker(str(tmp_path / "broken")) as unpacker:
        unpacker.put(b"no archive")
        with pytest.raises(ConfigError, match="cannot copy files to"):
            unpacker.finish()
