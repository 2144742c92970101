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
