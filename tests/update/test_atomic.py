"""A file is replaced as a whole, whatever happens meanwhile."""

import os
import signal
import subprocess
import sys

import pytest

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
