"""Jobs whose agents a real mpirun starts."""

import signal

import pytest
from tests.clusters import jobs

OPEN_MPI = ("--launcher", "mpi", "--mpi-program", "mpirun.openmpi", "-H", "node-a,node-b")
MPICH = ("--launcher", "mpi", "--mpi-program", "mpiexec.hydra", "-H", "localhost:2")
CHECKS = [jobs.learns_with_servers, jobs.learns_without, jobs.dies]
pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("check", CHECKS)
def test_open_mpi_on_two_hosts(open_mpi, tmp_path, check):
    check(open_mpi, tmp_path, *OPEN_MPI)


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, None)]
)
def test_however_it_is_ended_nothing_is_left(open_mpi, tmp_path, signum, code):
    jobs.is_stopped(open_mpi, tmp_path, *OPEN_MPI, signum=signum, code=code)


@pytest.mark.parametrize("check", CHECKS)
def test_mpich_here(mpich, tmp_path, check):
    check(mpich, tmp_path, *MPICH)


def test_a_host_that_does_not_exist_is_named(open_mpi, tmp_path):
    options = (*OPEN_MPI[:-1], "node-a,no-such-host")
    with open_mpi.nothing_left():
        ended = open_mpi.run(jobs.words(options, "-np", "2", "dying"), env=jobs.ENV)
    assert ended.returncode == 2
    assert "no-such-host" in ended.stderr
