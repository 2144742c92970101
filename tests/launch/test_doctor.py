"""What the doctor says and how it ends, without jobs; with jobs: tests/integration."""

import argparse

import pytest

from bireme import cli
from bireme.errors import ConfigError
from bireme.launch import doctor
from bireme.launch.doctor import examine
from bireme.launch.jobs import JobNote, noted


def ask(tmp_path, job=None, **env):
    lines = []
    options = argparse.Namespace(job=job, hosts="", hostfile="")
    code = examine(options, {"XDG_RUNTIME_DIR": str(tmp_path), **env}, lines.append)
    return code, lines


def test_a_machine_without_jobs(tmp_path):
    code, lines = ask(tmp_path)
    assert code == 0
    assert lines[-1].split(None, 1) == ["jobs", "none of this user on this machine"]


def test_a_transport_that_does_not_work(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "try_transport", lambda name: f"does not work: {name}")
    assert ask(tmp_path)[0] == 1


def test_collectives_in_shared_memory(tmp_path, monkeypatch):
    (line,) = [line for line in ask(tmp_path)[1] if line.startswith("collectives")]
    assert "works: processes here share memory" in line
    monkeypatch.setattr(doctor, "try_shared_collectives", lambda: "does not work: no futexes")
    code, lines = ask(tmp_path)
    assert code == 1
    assert "collectives  does not work: no futexes" in lines


def test_no_such_job(tmp_path, monkeypatch, capsys):
    with pytest.raises(ConfigError, match="no job 'x' of this user"):
        ask(tmp_path, "x")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli.main(["doctor", "--job", "x"]) == 2
    assert "scheduler's host:port" in capsys.readouterr().err


def test_a_secret_is_asked_for(tmp_path):
    with pytest.raises(ConfigError, match="BIREME_SECRET_FILE"):
        ask(tmp_path, "127.0.0.1:1")
    with pytest.raises(ConfigError, match="cannot read the job's secret"):
        ask(tmp_path, "127.0.0.1:1", BIREME_SECRET_FILE=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="BIREME_TLS_CERT"):
        ask(tmp_path, "127.0.0.1:1", BIREME_SECRET="s" * 16, BIREME_SECURITY="tls")


def test_a_job_without_a_scheduler(tmp_path):
    note = JobNote(
        job="job-1",
        launcher_pid=7,
        scheduler_address="",
        secret="s" * 16,
        secret_file="",
        security="auth",
        command=("python", "train.py"),
        num_workers=4,
        num_servers=0,
    )
    with noted(note, tmp_path / "bireme"):
        code, lines = ask(tmp_path, "job-1")
    assert code == 0
    assert lines == [
        "job-1: python train.py",
        "  4 workers, no scheduler to ask, launcher process 7",
    ]
