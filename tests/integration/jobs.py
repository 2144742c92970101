"""Starts real jobs for the tests of this folder and reads what their workers found."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_job(program, out, *, num_workers, num_servers, limit_s=100, **env):
    """Run a program of ``programs/`` on this machine.

    Args:
        program: Its name.
        out: Folder for what it writes.
        num_workers: Workers.
        num_servers: Servers.
        limit_s: When to give up.
        env: Variables for every process.

    Returns:
        What each rank says about each check: the empty string when it holds.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "bireme", "run"),
            *("-n", str(num_workers), "-s", str(num_servers)),
            *(sys.executable, "-W", "error", "-m", f"tests.integration.programs.{program}", str(out)),
        ],
        cwd=ROOT,
        env={**os.environ, **{name.upper(): value for name, value in env.items()}},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(num_workers)]
