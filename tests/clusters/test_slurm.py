"""Jobs in a real Slurm of two nodes."""

import signal

import pytest
from tests.clusters import jobs

INSIDE = ("--launcher", "slurm")
BATCH = (*INSIDE, "--slurm-nodes", "2")
SALLOC = ("salloc", "--quiet", "-N2", "-n2")
CHECKS = [jobs.learns_with_servers, jobs.learns_without, jobs.dies]
pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("check", CHECKS)
def test_inside_of_an_allocation(slurm, tmp_path, check):
    check(slurm, tmp_path, *INSIDE, before=SALLOC)


@pytest.mark.parametrize("check", CHECKS)
def test_a_batch_job_is_followed(slurm, tmp_path, check):
    check(slurm, tmp_path, *BATCH)


def test_ctrl_c_cancels_a_batch_job(slurm, tmp_path):
    jobs.is_stopped(slurm, tmp_path, *BATCH)
    assert slurm.run(["squeue", "--noheader"], check=True).stdout == ""


def test_a_job_that_is_cancelled_from_outside_is_over(slurm, tmp_path):
    options = (*BATCH, "--slurm-detach")
    with slurm.nothing_left(limit_s=40):
        command = [*jobs.words(options, "-np", "2", "dying"), "for ever"]
        said = slurm.run(command, env=jobs.ENV, folder=tmp_path, check=True).stderr
        number = said.split()[1]
        log = tmp_path / f"slurm-{number}.log"
        jobs.until(lambda: log.exists() and log.read_text().count(" on node-") == 2, "both run", 60)
        slurm.run(["scancel", number], check=True)
    assert "SIGTERM: ending the job" in log.read_text()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_launcher_in_an_allocation_is_the_jobs(slurm, tmp_path, signum):
    jobs.is_stopped(slurm, tmp_path, *INSIDE, before=SALLOC, signum=signum, code=None)
