"""The exact scripts and steps; jobs in a real Grid Engine are in ``tests/clusters``."""

import pytest
from tests.launch.goldens import JOBS, SECRET, job, same_as_golden

from bireme.errors import ConfigError, JobError
from bireme.launch.backends.sge import SgeBackend
from bireme.launch.hosts import parse_hosts

KINDS = {
    "pe": {"pe": "mpi", "args": ("-P", "bio")},
    "array": {"array": True},
}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_script_is_exactly_this(kind, name):
    backend = SgeBackend({}, python="/opt/python", **KINDS[kind])
    text = backend.render(backend.plan(JOBS[name]))
    assert same_as_golden(f"sge-{kind}-{name}", text)
    assert SECRET not in text
    assert "fast and loose" not in text


def test_the_steps_inside_of_a_parallel_job_are_exactly_these(monkeypatch):
    monkeypatch.setattr("bireme.launch.pe.with_package", lambda env: {"PYTHONPATH": "/lib/py"})
    granted = parse_hosts("leda.example.org:2,castor.example.org:2")
    backend = SgeBackend({}, granted=granted, python="/opt/python")
    text = backend.render(backend.plan(job(here="leda")))
    assert same_as_golden("sge-step-parameter-server", text)
    assert SECRET not in text


def test_what_grid_engine_has_to_be_told():
    with pytest.raises(ConfigError, match="--sge-pe mpi"):
        SgeBackend({}).plan(job())
    with pytest.raises(ConfigError, match="Grid Engine chooses the hosts"):
        SgeBackend({}, pe="mpi").plan(job(hosts=parse_hosts("leda:3")))


def test_tasks_of_an_array_are_the_hosts():
    plan = SgeBackend({}, array=True).plan(job())
    assert [host.host.name for host in plan.hosts] == ["task-1", "task-2", "task-3"]
    assert not plan.is_local


@pytest.mark.parametrize("refused", [False, True])
def test_a_job_that_nobody_stays_for_finds_its_environment(tmp_path, refused):
    qsub = tmp_path / "qsub"
    says = "exit 1" if refused else "echo 'Your job 7 (\"x\") has been submitted'"
    qsub.write_text(f"#!/bin/sh\n{says}\n")
    qsub.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    backend = SgeBackend(env, pe="mpi", detach=True)
    spec = job(inherited=env, output_dir=str(tmp_path / "out"))
    if refused:
        with pytest.raises(JobError, match="refuses the job"):
            backend.submit(backend.plan(spec), None)
        assert list((tmp_path / "out").iterdir()) == []
    else:
        assert backend.submit(backend.plan(spec), None).job == "7"
        (kept,) = (tmp_path / "out").iterdir()
        assert f"export PATH={tmp_path}:/usr/bin:/bin" in kept.read_text()
