"""Jobs that run in the foreground are found by their launcher's note."""

import os
import signal
import subprocess
import sys

import pytest

from bireme.errors import ConfigError
from bireme.launch.base import State
from bireme.launch.foreground import cancel_here, logs_here, logs_in, status_here
from bireme.launch.jobs import JobNote, noted


@pytest.fixture
def env(tmp_path):
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


def note(pid=1, output_dir=""):
    return JobNote(
        job="job-1",
        launcher_pid=pid,
        scheduler_address="",
        secret="",
        secret_file="",
        security="off",
        command=("train",),
        num_workers=1,
        num_servers=0,
        output_dir=output_dir,
    )


def test_states(env, tmp_path):
    assert status_here("job-1", env) is State.ENDED
    with noted(note(), tmp_path / "bireme"):
        assert status_here("job-1", env) is State.RUNNING
    assert status_here("job-1", env) is State.ENDED
    cancel_here("job-1", env)


def test_to_cancel_is_to_tell_the_launcher(env, tmp_path):
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    with process, noted(note(process.pid), tmp_path / "bireme"):
        cancel_here("job-1", env)
        assert process.wait(10) == -signal.SIGTERM


def test_logs(env, tmp_path):
    folder = tmp_path / "logs"
    (folder / "rank.0").mkdir(parents=True)
    (folder / "rank.0" / "stdout").write_text("one\ntwo\n")
    (folder / "worker-0.log").write_bytes(b"\xff\n")
    with noted(note(os.getpid(), str(folder)), tmp_path / "bireme"):
        assert list(logs_here("job-1", env)) == [
            "rank.0/stdout: one",
            "rank.0/stdout: two",
            "worker-0.log: \ufffd",
        ]
    assert list(logs_in(tmp_path / "none")) == []


def test_no_logs(env, tmp_path):
    with pytest.raises(ConfigError, match="no job 'job-1' runs here"):
        list(logs_here("job-1", env))
    with (
        noted(note(), tmp_path / "bireme"),
        pytest.raises(ConfigError, match="keeps no output; start it with --output-dir"),
    ):
        list(logs_here("job-1", env))
