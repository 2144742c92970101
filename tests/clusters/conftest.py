"""Stages with real daemons on them, or the reason why there are none."""

import os
import shutil
import subprocess

import pytest
from tests.clusters.grid_engine import start_grid_engine
from tests.clusters.slurm import start_slurm
from tests.clusters.sshd import start_sshd
from tests.clusters.stage import Stage

_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_MISSING_FAILS = False


def pytest_addoption(parser):
    parser.addoption(
        "--all-installed",
        action="store_true",
        help="daemons that are not installed fail the tests instead of skipping them",
    )


def pytest_configure(config):
    global _MISSING_FAILS
    _MISSING_FAILS = config.getoption("--all-installed", default=False)


def _stage(tmp_path_factory, *commands):
    """Return a stage; skip where the machine has no such commands, or allows no namespaces."""
    missing = [name for name in commands if shutil.which(name, path=_PATH) is None]
    if missing:
        give_up = pytest.fail if _MISSING_FAILS else pytest.skip
        give_up(f"not installed: {', '.join(missing)}; run tools/install_clusters.sh")
    try:
        allowed = subprocess.run(
            ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("not installed: unshare; run tools/install_clusters.sh")
    if allowed.returncode != 0:
        pytest.skip(f"hosts are made of namespaces, which need root: {allowed.stderr.strip()}")
    stage = Stage(tmp_path_factory.mktemp("stage"))
    stage.env["PATH"] = _PATH
    return stage


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Three hosts that reach each other by ssh."""
    with _stage(tmp_path_factory, "ssh", "sshd", "ip") as stage:
        start_sshd(stage)
        yield stage


@pytest.fixture(scope="module")
def open_mpi(tmp_path_factory):
    """Hosts that ``mpirun`` of Open MPI starts processes on."""
    with _stage(tmp_path_factory, "ssh", "sshd", "ip", "mpirun.openmpi") as stage:
        stage.env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        start_sshd(stage)
        yield stage


@pytest.fixture(scope="module")
def mpich(tmp_path_factory):
    """A host with MPICH."""
    with _stage(tmp_path_factory, "ip", "mpiexec.hydra") as stage:
        yield stage


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm cluster of two nodes; commands run on the first host."""
    with _stage(tmp_path_factory, "ip", "munged", "slurmctld", "slurmd") as stage:
        start_slurm(stage)
        yield stage


@pytest.fixture(scope="module")
def grid_engine(tmp_path_factory):
    """A Grid Engine cluster of two execution hosts; commands run on the first host."""
    with _stage(tmp_path_factory, "ip", "qsub", "sge_qmaster", "sge_execd") as stage:
        start_grid_engine(stage)
        yield stage
