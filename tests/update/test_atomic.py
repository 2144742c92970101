"""A file is replaced as a whole, whatever happens meanwhile."""

import os
import signal
import subprocess
import sys

import pytest

from bireme.errors import ConfigError, FileError
from bireme.update import atomic


def test_the_content_and_nothing_else(tmp_path):
    path = tmp_path / "states"
    for content in (b"one", b"two"):
        atomic.write(str(path), content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["states"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "states"
    atomic.write(str(path), b"one")

    def full(_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        atomic.write(str(path), b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["states"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.write(path, write)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(FileError, match="No such file"):
        atomic.write(tmp_path / "b" / "c", write)


@pytest.mark.parametrize(
    "name", ["", "folder", "folder/", "none/file", "file/inside", "x" * 300, "."]
)
def test_all_that_cannot_be_written_is_refused_alike(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="cannot write") as refused:
        atomic.write(name, b"two")
    assert isinstance(refused.value, ConfigError)
    assert isinstance(refused.value, OSError)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_what_is_no_regular_file_is_left_alone(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match="no regular file"):
        atomic.write(pipe, b"two")
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("path", [None, 3, b"x", "a\0b", ["x"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigError, match="a path is text"):
        atomic.write(path, b"two")


KILLED = """
import os, signal, sys
from bireme.update import atomic
path, moment = sys.argv[1:]
setattr(os, moment, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
atomic.write(path, b"two")
"""


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_killed_writer_leaves_the_old_file(tmp_path, moment):
    path = tmp_path / "states"
    path.write_bytes(b"one")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), moment], timeout=50, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"one"
