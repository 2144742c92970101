"""Jobs in a real Grid Engine of two hosts."""

import os
import re
import signal

import pytest
from tests.clusters import jobs

PE = ("--launcher", "sge", "--sge-pe", "mpi")
ARRAY = ("--launcher", "sge", "--sge-array")
CHECKS = [jobs.learns_with_servers, jobs.learns_without, jobs.dies]
pytestmark = pytest.mark.timeout(500)


@pytest.mark.parametrize("check", CHECKS)
def test_a_parallel_environment(grid_engine, tmp_path, check):
    check(grid_engine, tmp_path, *PE)
    assert [path.suffix for path in tmp_path.iterdir()] == [".log"]


@pytest.mark.parametrize("check", CHECKS)
def test_an_array_job(grid_engine, tmp_path, check):
    check(grid_engine, tmp_path, *ARRAY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [PE, ARRAY], ids=["pe", "array"])
def test_ctrl_c_deletes_the_job(grid_engine, tmp_path, options):
    jobs.is_stopped(grid_engine, tmp_path, *options)
    jobs.until(lambda: grid_engine.run(["qstat"]).stdout == "", "no job is left", 30)
    assert not list(tmp_path.glob(".*"))


def test_a_job_that_nobody_stays_for(grid_engine, tmp_path):
    jobs.is_submitted(grid_engine, tmp_path, "sge", *PE, "--sge-detach")
    # The file with the environment is gone, too.
    assert [path.suffix for path in tmp_path.iterdir()] == [".log"]


@pytest.mark.parametrize(
    ("options", "num_copies"), [(PE, 1), (ARRAY, 2)], ids=["pe, whose first host has them", "array"]
)
def test_files_come_along(grid_engine, tmp_path, options, num_copies):
    jobs.is_copied(grid_engine, tmp_path, *options, num_copies=num_copies)


@pytest.mark.parametrize(("who", "code"), [("agent", 255), ("rank", 137)])
def test_whoever_is_killed_nothing_is_left(grid_engine, tmp_path, who, code):
    jobs.is_hit(grid_engine, tmp_path, *ARRAY, who=who, code=code)


@pytest.mark.parametrize("options", [PE, ARRAY], ids=["pe", "array"])
def test_a_launcher_that_is_killed_leaves_its_job_to_grid_engine_or_to_nobody(
    grid_engine, tmp_path, options
):
    """Tasks of an array end with the launcher that they called; a parallel job has its own."""
    command = [*jobs.words(options, "-np", "2", "dying"), "for ever"]
    with grid_engine.nothing_left(limit_s=60):
        with grid_engine.start(command, env=jobs.ENV, folder=tmp_path) as launcher:
            seen = []
            jobs.until(lambda: jobs._has_both(launcher, seen), "both run", jobs.LIMIT_S)
            os.kill(launcher.inner_pid, signal.SIGKILL)
            launcher.wait(120)
        if options is PE:
            number = re.search(r"submitted as job (\d+)", "".join(seen))[1]
            grid_engine.run(["qdel", number], check=True)
        jobs.until(lambda: grid_engine.run(["qstat"]).stdout == "", "no job is left", 60)
