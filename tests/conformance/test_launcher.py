"""What every launcher promises, asked of each by its own command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launch.processes import pids, wait_until_gone

from bireme.launch.registry import BACKENDS

SCRIPT = """import os, sys, time
role, rank = os.environ['BIREME_ROLE'], os.environ['BIREME_RANK']
print('pid', os.getpid(), role, rank, os.environ['DMLC_ROLE'], sys.argv[1:], flush=True)
if 'wait' in sys.argv: time.sleep(60)
if 'fail' in sys.argv and (role, rank) == ('worker', '1'): sys.exit(5)
if 'fail' in sys.argv: time.sleep(60)
"""

FAKES = str(Path(__file__).parent.parent / "launch")
"""Where a program called ssh stands for the real one."""

PLACES = {"local": (), "ssh": ("-H", "leda:1,castor:1"), "mpi": ("-H", "leda:1,castor:1")}
"""Backends that need no cluster, and where they run jobs in tests."""

pytestmark = pytest.mark.parametrize("launcher", PLACES)


def test_every_backend_that_needs_no_cluster_is_here(launcher):
    assert launcher in BACKENDS


def environment():
    return {**os.environ, "PATH": f"{FAKES}:{os.environ['PATH']}"}


def command_of(launcher, *options):
    program = [sys.executable, "-m", "bireme", "run", "--launcher", launcher, *PLACES[launcher]]
    return [*program, *options]


def started(launcher, *arguments, options=()):
    command = command_of(launcher, "-n", "2", "-s", "1", *options)
    return subprocess.Popen(
        [*command, sys.executable, "-S", "-c", SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def finished(launcher, *arguments, options=()):
    process = started(launcher, *arguments, options=options)
    out, err = process.communicate(timeout=50)
    return process.returncode, out.splitlines(), err


def test_every_node_runs_the_command_with_its_arguments(launcher):
    code, lines, _ = finished(launcher, "a b", "*", "$HOME", "'")
    assert code == 0
    assert sorted(line.split()[0] for line in lines) == ["H", "S[0]", "W[0]", "W[1]"]
    for line in lines:
        assert line.endswith("""['a b', '*', '$HOME', "'"]""")
        assert any(f" {role} " in line for role in ("scheduler 0", "server 0", "worker"))


def test_the_first_failure_ends_the_job_with_its_exit_code(launcher):
    code, lines, err = finished(launcher, "fail")
    assert code == 5
    assert re.search(r"W\[1\]( on castor)? ended with exit code 5", err)
    wait_until_gone(pids(lines))


def test_a_job_is_ended_when_its_launcher_is_told_to_stop(launcher):
    with started(launcher, "wait") as process:
        lines = [process.stdout.readline() for _ in range(4)]
        process.terminate()
        assert process.wait(30) == 143
    wait_until_gone(pids(lines))


def test_variables_of_the_user_reach_every_process(launcher):
    code = "import os; print(os.environ['A'])"
    command = command_of(launcher, "-n", "1")
    run = subprocess.run(
        [*command, "--env", "A=x 'y' $Z", sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
        env=environment(),
    )
    assert run.stdout.count("| x 'y' $Z\n") == 3
