"""Jobs are asked, ended and heard by their names."""

import argparse

import msgspec
import pytest

from bireme.launch.jobcommand import act_on_job, add_job_command
from bireme.launch.jobs import JobNote, noted

NOTE = JobNote(
    job="job-1",
    launcher_pid=0,
    scheduler_address="",
    secret="",
    secret_file="",
    security="off",
    command=("train",),
    num_workers=1,
    num_servers=0,
)


def act(tmp_path, *arguments):
    parser = argparse.ArgumentParser()
    add_job_command(parser.add_subparsers())
    said = []
    options = parser.parse_args(["job", *arguments])
    assert act_on_job(options, {"XDG_RUNTIME_DIR": str(tmp_path)}, said.append) == 0
    return said


@pytest.mark.parametrize("launcher", ["local", "ssh"])
def test_status(tmp_path, launcher):
    where = ("--launcher", launcher)
    assert act(tmp_path, "status", "job-1", *where) == ["ended"]
    with noted(NOTE, tmp_path / "bireme"):
        assert act(tmp_path, "status", "job-1", *where) == ["running"]


def test_cancel_and_logs(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "worker-0.log").write_text("x\n")
    assert act(tmp_path, "cancel", "job-1") == []
    note = msgspec.structs.replace(NOTE, output_dir=str(logs))
    with noted(note, tmp_path / "bireme"):
        assert act(tmp_path, "logs", "job-1") == ["worker-0.log: x"]


def test_what_it_does_not_do(tmp_path, capsys):
    with pytest.raises(SystemExit):
        act(tmp_path, "restart", "job-1")
    assert "status" in capsys.readouterr().err
