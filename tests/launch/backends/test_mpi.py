"""The exact command of each family; jobs over real ones are in ``tests/clusters``."""

from dataclasses import replace

import pytest
from tests.launch.goldens import JOBS, SECRET, job, same_as_golden

from bireme.errors import ConfigError
from bireme.launch.backends.mpi import MpiBackend
from bireme.launch.hosts import parse_hosts
from bireme.launch.mpi_words import FLAVOURS

HOSTS = parse_hosts("leda:2,castor:2")


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_command_is_exactly_this(flavour, name):
    backend = MpiBackend({}, flavour=flavour, args=("--tag", "two words"), python="/opt/python")
    text = backend.render(backend.plan(replace(JOBS[name], hosts=HOSTS)))
    assert same_as_golden(f"mpi-{flavour}-{name}", text)
    assert SECRET not in text
    assert "not to be shown" not in text


def test_hosts_come_from_an_allocation_of_slurm():
    env = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"}
    plan = MpiBackend({}).plan(job(inherited=env))
    assert [host.host.name for host in plan.hosts] == ["n1", "n2"]


def test_no_hosts():
    with pytest.raises(ConfigError, match="mpirun on which hosts"):
        MpiBackend({}).plan(job())


@pytest.mark.parametrize("hosts", ["ann@leda:3", "[::1]:3"])
def test_what_mpirun_cannot_be_told_is_refused(hosts):
    with pytest.raises(ConfigError, match="mpirun takes names only"):
        MpiBackend({}).plan(job(hosts=parse_hosts(hosts)))


def test_an_unknown_family():
    with pytest.raises(ConfigError, match="valid: openmpi, mpich, intel"):
        MpiBackend({}, flavour="lam")
