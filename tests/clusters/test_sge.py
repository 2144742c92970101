"""Jobs in a real Grid Engine of two hosts."""

import pytest
from tests.clusters import jobs

PE = ("--launcher", "sge", "--sge-pe", "mpi")
ARRAY = ("--launcher", "sge", "--sge-array")
CHECKS = [jobs.learns_with_servers, jobs.learns_without, jobs.dies]
pytestmark = pytest.mark.timeout(240)


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
