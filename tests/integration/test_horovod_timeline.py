"""What timelines show of jobs: communication while backward runs, also of jobs that were killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.traces import read

from bireme.horovod import environment

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "tests.integration.programs"

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


def command(num_proc, program, *arguments):
    return [
        *(sys.executable, "-m", "bireme", "run", "-np", str(num_proc)),
        *(sys.executable, "-m", f"{PROGRAMS}.{program}", *map(str, arguments)),
    ]


def env(timeline, **more):
    return environment.read() | {"HOROVOD_TIMELINE": str(timeline)} | more


@pytest.mark.parametrize("num_proc", [2, 3])
def test_gradients_travel_while_backward_runs(tmp_path, num_proc):
    ended = subprocess.run(
        command(num_proc, "overlapping_backward", tmp_path),
        cwd=ROOT,
        env=env(tmp_path / "trace.{rank}.json", HOROVOD_TIMELINE_MARK_CYCLES="1"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    for rank in range(num_proc):
        spans, names = read(tmp_path / f"trace.{rank}.json")
        reductions = [
            span for span in spans if span.name == "ALLREDUCE" and span.row != "allreduce.meet"
        ]
        backwards = json.loads((tmp_path / f"spans.{rank}.json").read_text())
        # 16 gradients a step.
        assert len(reductions) == 16 * len(backwards)
        within = [
            {s.row for s in reductions if began_s <= s.began_s and s.ended_s <= ended_s}
            for began_s, ended_s, _ in backwards
        ]
        assert all("allreduce.7.weight" in rows for rows in within), within
        # Only rank 0 knows of the negotiation and of rounds.
        assert ("NEGOTIATE_ALLREDUCE" in names) == ("CYCLE_START" in names) == (rank == 0)


def test_a_killed_jobs_timelines_are_whole(tmp_path):
    job = subprocess.Popen(
        command(2, "overlapping_backward", tmp_path, 10_000),
        cwd=ROOT,
        env=env(tmp_path / "trace.{rank}.json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        os.kill(pid_of(job, tmp_path / "pid-1"), signal.SIGKILL)
        _, err = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode != 0
    for rank in range(2):
        spans, _ = read(tmp_path / f"trace.{rank}.json")
        assert any(span.name == "ALLREDUCE" for span in spans), err


def pid_of(job, path):
    limit_s = time.monotonic() + 60
    while not (path.exists() and path.read_text().endswith("\n")):
        assert job.poll() is None
        assert time.monotonic() < limit_s
        time.sleep(0.01)
    return int(path.read_text())
