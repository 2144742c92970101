"""Jobs whose agents a real mpirun starts."""

import signal
import sys

import pytest
from tests.clusters import jobs

OPEN_MPI = ("--launcher", "mpi", "--mpi-program", "mpirun.openmpi", "-H", "node-a,node-b")
MPICH = ("--launcher", "mpi", "--mpi-program", "mpiexec.hydra", "-H", "localhost:2")
CHECKS = [jobs.learns_with_servers, jobs.learns_without, jobs.dies]
pytestmark = pytest.mark.timeout(500)


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


def test_files_come_along(open_mpi, tmp_path):
    jobs.is_copied(open_mpi, tmp_path, *OPEN_MPI)


def test_a_script_on_one_host_without_our_launcher(open_mpi, tmp_path):
    line = ("mpirun.openmpi", "-np", "2", "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS")
    places = jobs.learns_by_itself(open_mpi, tmp_path, *line)
    assert places == ["0 of 2, 0 of 2 on head", "1 of 2, 1 of 2 on head"]


def test_a_script_on_two_hosts_without_our_launcher(open_mpi, tmp_path):
    line = ("mpirun.openmpi", "-np", "2", "--host", "node-a:1,node-b:1", "--bind-to", "none")
    line = (*line, "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS")
    meeting = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}
    passed = ("-x", "MASTER_ADDR", "-x", "MASTER_PORT")
    places = jobs.learns_by_itself(open_mpi, tmp_path, *line, *passed, env=meeting)
    assert places == ["0 of 2, 0 of 1 on node-a", "1 of 2, 0 of 1 on node-b"]


def test_a_script_on_two_hosts_that_is_not_told_where_to_meet(open_mpi, tmp_path):
    line = ["mpirun.openmpi", "-np", "2", "--host", "node-a:1,node-b:1", "-x", "PYTHONPATH"]
    program = [sys.executable, "-m", "tests.clusters.programs.by_names"]
    with open_mpi.nothing_left():
        ended = open_mpi.run([*line, *program], env=jobs.ENV, folder=tmp_path, limit_s=120)
    assert ended.returncode != 0
    assert "set MASTER_ADDR to the address of rank 0's machine" in ended.stdout + ended.stderr


def test_a_script_of_mpich_without_our_launcher(mpich, tmp_path):
    places = jobs.learns_by_itself(mpich, tmp_path, "mpiexec.hydra", "-n", "2")
    assert places == ["0 of 2, 0 of 2 on head", "1 of 2, 1 of 2 on head"]


@pytest.mark.parametrize(("who", "code"), [("agent", 255), ("rank", 137)])
def test_whoever_is_killed_nothing_is_left(open_mpi, tmp_path, who, code):
    jobs.is_hit(open_mpi, tmp_path, *OPEN_MPI, who=who, code=code)
