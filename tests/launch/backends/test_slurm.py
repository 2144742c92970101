"""The exact script and the exact step; jobs in a real Slurm are in ``tests/clusters``."""

from dataclasses import replace

import pytest
from tests.launch.goldens import JOBS, SECRET, job, same_as_golden

from bireme.errors import ConfigError
from bireme.launch.backends.slurm import SlurmBackend
from bireme.launch.base import State

INSIDE = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS": "4",
}


@pytest.mark.parametrize("name", JOBS)
def test_the_batch_script_is_exactly_this(name):
    backend = SlurmBackend({}, nodes=2, args=("--account=bio",), python="/opt/python")
    text = backend.render(backend.plan(JOBS[name]))
    assert same_as_golden(f"slurm-batch-{name}", text)
    assert SECRET not in text
    assert "fast and loose" not in text


@pytest.mark.parametrize("name", JOBS)
def test_the_step_inside_of_an_allocation_is_exactly_this(name):
    backend = SlurmBackend({}, python="/opt/python")
    spec = replace(JOBS[name], inherited={**JOBS[name].inherited, **INSIDE})
    text = backend.render(backend.plan(spec))
    assert same_as_golden(f"slurm-step-{name}", text)
    assert SECRET not in text


def test_a_variable_with_two_values_cannot_go_into_a_script():
    spec = job(server_env={"A": "1"}, worker_env={"A": "2"})
    with pytest.raises(ConfigError, match="A has several values"):
        SlurmBackend({}).plan(spec)


def test_too_few_nodes():
    with pytest.raises(ConfigError, match="--slurm-nodes must be >= 0"):
        SlurmBackend({}, nodes=-1)


@pytest.fixture
def fakes(tmp_path):
    """A folder of programs that say what they are to say."""

    def make(name, text):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        program.chmod(0o755)
        return {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    return make


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("JobState=PENDING", State.QUEUED),
        ("JobState=RUNNING", State.RUNNING),
        ("JobState=CANCELLED", State.ENDED),
        ("slurm_load_jobs error: Invalid job id specified", State.ENDED),
    ],
)
def test_states(fakes, said, state):
    assert SlurmBackend(fakes("scontrol", said)).status("7") is state


def test_logs(fakes, tmp_path):
    (tmp_path / "out.log").write_text("one\ntwo\n")
    env = fakes("scontrol", f"JobId=7 StdErr=/x StdOut={tmp_path}/out.log Power=")
    assert list(SlurmBackend(env).logs("7")) == ["out.log: one", "out.log: two"]
    with pytest.raises(ConfigError, match="knows of no output of job 7"):
        list(SlurmBackend(fakes("scontrol", "slurm_load_jobs error: Invalid job id")).logs("7"))
