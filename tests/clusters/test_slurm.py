"""Jobs in a real Slurm of two nodes."""

import os
import re
import signal

import pytest
from tests.clusters import jobs

INSIDE = ("--launcher", "slurm")
BATCH = (*INSIDE, "--slurm-nodes", "2")
SALLOC = ("salloc", "--quiet", "-N2", "-n2")
CHECKS = [jobs.learns_with_servers, jobs.learns_without, jobs.dies]
pytestmark = pytest.mark.timeout(500)


@pytest.mark.parametrize("check", CHECKS)
def test_inside_of_an_allocation(slurm, tmp_path, check):
    check(slurm, tmp_path, *INSIDE, before=SALLOC)


@pytest.mark.parametrize("check", CHECKS)
def test_a_batch_job_is_followed(slurm, tmp_path, check):
    check(slurm, tmp_path, *BATCH)


def test_ctrl_c_cancels_a_batch_job(slurm, tmp_path):
    jobs.is_stopped(slurm, tmp_path, *BATCH)
    assert slurm.run(["squeue", "--noheader"], check=True).stdout == ""


def _both_run(log):
    return log.read_text().count("has let go") == 2


def test_a_job_that_is_cancelled_from_outside_is_over(slurm, tmp_path):
    options = (*BATCH, "--slurm-detach")
    with slurm.nothing_left(limit_s=40):
        command = [*jobs.words(options, "-np", "2", "dying"), "for ever"]
        said = slurm.run(command, env=jobs.ENV, folder=tmp_path, check=True).stderr
        number = said.split()[1]
        log = tmp_path / f"slurm-{number}.log"
        jobs.until(lambda: log.exists() and _both_run(log), "both run", jobs.LIMIT_S)
        slurm.run(["scancel", number], check=True)
    assert "SIGTERM: ending the job" in log.read_text()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_launcher_in_an_allocation_is_the_jobs(slurm, tmp_path, signum):
    jobs.is_stopped(slurm, tmp_path, *INSIDE, before=SALLOC, signum=signum, code=None)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_who_follows_a_batch_job(slurm, tmp_path, signum):
    """SIGTERM is the job's; killed, the launcher can do nothing, and the job goes on in Slurm."""
    command = [*jobs.words(BATCH, "-np", "2", "dying"), "for ever"]
    with slurm.nothing_left(limit_s=40):
        with slurm.start(command, env=jobs.ENV, folder=tmp_path) as launcher:
            seen = []
            jobs.until(lambda: jobs._has_both(launcher, seen), "both run", jobs.LIMIT_S)
            number = re.search(r"submitted as job (\d+)", "".join(seen))[1]
            os.kill(launcher.inner_pid, signum)
            launcher.stdout.read()
            status = launcher.wait(120)
        left = slurm.run(["squeue", "--noheader", "--format=%i"], check=True).stdout.split()
        assert left == ([number] if signum == signal.SIGKILL else [])
        if left:
            slurm.run(["scancel", number], check=True)
    assert status == (143 if signum == signal.SIGTERM else -9)


def test_a_batch_job_that_nobody_stays_for(slurm, tmp_path):
    number = jobs.is_submitted(slurm, tmp_path, "slurm", *BATCH, "--slurm-detach")
    log = (tmp_path / f"slurm-{number}.log").read_text()
    assert "SIGTERM: ending the job" in log


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "batch"])
def test_files_come_along(slurm, tmp_path, inside):
    options, before = (INSIDE, SALLOC) if inside else (BATCH, ())
    jobs.is_copied(slurm, tmp_path, *options, before=before)


def test_a_script_without_our_launcher(slurm, tmp_path):
    places = jobs.learns_by_itself(slurm, tmp_path, "srun", "-N2", "-n2")
    assert places == ["0 of 2, 0 of 1 on node-a", "1 of 2, 0 of 1 on node-b"]


def test_a_script_on_one_node_without_our_launcher(slurm, tmp_path):
    places = jobs.learns_by_itself(slurm, tmp_path, "srun", "-N1", "-n2")
    assert places == ["0 of 2, 0 of 2 on node-a", "1 of 2, 1 of 2 on node-a"]


@pytest.mark.parametrize(("who", "code"), [("agent", 255), ("rank", 137)])
def test_whoever_is_killed_nothing_is_left(slurm, tmp_path, who, code):
    jobs.is_hit(slurm, tmp_path, *INSIDE, before=SALLOC, who=who, code=code)
