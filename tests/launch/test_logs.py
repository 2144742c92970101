"""Output is kept where it belongs; a full disk ends a file, not the job."""

import os
from pathlib import Path

import pytest
from tests.launch.goldens import job

from bireme.errors import ConfigError
from bireme.launch.logs import Logs, log_paths, logs_of
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.types import SCHEDULER, server, worker


def test_a_file_for_each_node(tmp_path):
    paths = {node: log_paths(node, by_rank=False) for node in (SCHEDULER, server(0), worker(1))}
    with Logs(tmp_path / "a" / "b", paths, print) as logs:
        logs.keep(worker(1), ["one", "two"], is_error=False)
        logs.keep(worker(1), ["three"], is_error=True)
        logs.keep(worker(2), ["nobody's"], is_error=True)
    folder = tmp_path / "a" / "b"
    assert sorted(os.listdir(folder)) == ["scheduler.log", "server-0.log", "worker-1.log"]
    assert (folder / "worker-1.log").read_text() == "one\ntwo\nthree\n"


def test_a_folder_for_each_rank(tmp_path):
    spec = job(num_workers=12, output_dir=str(tmp_path), output_by_rank=True)
    with logs_of(plan_on(spec, [THIS_MACHINE]), print) as logs:
        logs.keep(worker(3), ["out"], is_error=False)
        logs.keep(worker(3), ["err"], is_error=True)
    assert (tmp_path / "rank.03" / "stdout").read_text() == "out\n"
    assert (tmp_path / "rank.03" / "stderr").read_text() == "err\n"
    assert (tmp_path / "server.1" / "stdout").exists()
    assert (tmp_path / "scheduler" / "stderr").exists()


def test_nobody_wants_any():
    assert logs_of(plan_on(job(), [THIS_MACHINE]), print) is None


def test_a_full_disk():
    complaints = []
    paths = {worker(0): ("full", "full")}
    with Logs(Path("/dev"), paths, complaints.append) as logs:
        logs.keep(worker(0), ["x"], is_error=False)
        logs.keep(worker(0), ["y"], is_error=True)
    assert len(complaints) == 1
    assert "the output of W[0] is not kept any longer" in complaints[0]


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to the output directory"):
        Logs(tmp_path / "file", {worker(0): ("a", "a")}, print)
