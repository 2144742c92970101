"""Hundreds of jobs in one process, one after another: nothing is left of those before."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def segments():
    return {name for name in os.listdir("/dev/shm") if "bireme" in name}


@pytest.mark.parametrize(("num_proc", "cycles"), [(1, 300), (2, 200)])
def test_init_and_shutdown_hundreds_of_times(tmp_path, num_proc, cycles):
    before = segments()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "bireme", "run", "-np", str(num_proc), sys.executable),
            *("-m", "tests.integration.programs.reinits", str(cycles), str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    for rank in range(num_proc):
        early, late = json.loads((tmp_path / f"held-{rank}.json").read_text())
        for what in ("descriptors", "threads", "mapped"):
            assert late[what] <= early[what], (rank, what, early, late)
        # A few objects may come and go; a job that leaked would leave some in each cycle.
        assert late["objects"] - early["objects"] < cycles, (rank, early, late)
        assert late["resident_bytes"] - early["resident_bytes"] < 8 * MIB, (rank, early, late)
    assert segments() - before == set()
