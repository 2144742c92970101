"""Horovod's rules for operations on several ranks, what its own suite leaves open among them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bireme.horovod

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


def run(num_proc, *command, **variables):
    return subprocess.run(
        [sys.executable, "-m", "bireme", "run", "-np", str(num_proc), sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.parametrize("num_proc", [2, 3])
@pytest.mark.parametrize("program", ["horovod_values", "horovod_rules"])
def test_every_rank_finds_what_horovod_promises(tmp_path, program, num_proc):
    ended = run(num_proc, "-m", f"tests.integration.programs.{program}", str(tmp_path))
    found = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert found == {f"{rank}.json": {} for rank in range(num_proc)}, ended.stderr[-2000:]
    assert ended.returncode == 0, ended.stderr[-2000:]


STALL = """
import bireme.horovod.torch as hvd, torch
hvd.init()
try:
    if hvd.rank() == 0:
        hvd.allreduce(torch.ones(1), name="lonely")
    hvd.barrier()
except hvd.HorovodInternalError as error:
    print("ended:", error)
"""


def test_a_stall_is_told_with_the_missing_ranks_and_ends_the_job_when_asked_to(tmp_path):
    script = tmp_path / "stall.py"
    script.write_text(STALL)
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    ended = run(2, str(script), PYTHONPATH=str(ROOT / "src"), **limits)
    assert ended.returncode == 0, ended.stderr
    told = [line for line in ended.stdout.splitlines() if "ended: " in line]
    assert len(told) == 2
    for text in (ended.stderr, *told):
        assert "rank 1 misses allreduce.lonely" in text


def test_a_function_runs_where_localhost_and_its_address_are_two_hosts():
    def places():
        import bireme.horovod.torch as hvd

        hvd.init()
        found = (hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
        return (*found, hvd.is_homogeneous(), hvd.allgather_object(hvd.rank()))

    found = bireme.horovod.run(places, num_proc=4, hosts="localhost:2,127.0.0.1:2")
    assert found == [(rank, rank % 2, 2, rank // 2, 2, True, [0, 1, 2, 3]) for rank in range(4)]
