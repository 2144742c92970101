import argparse
from dataclasses import replace

import pytest
from tests.launch.goldens import JOBS, SECRET, job

from bireme.errors import ConfigError
from bireme.launch.again import run_again, variables_again
from bireme.launch.command import add_run_command, job_spec


@pytest.mark.parametrize("name", JOBS)
def test_the_same_job_is_read_again(name):
    spec = replace(JOBS[name], workdir="/", grace_s=30.0)
    parser = argparse.ArgumentParser()
    add_run_command(parser.add_subparsers(dest="command"))
    words = run_again(spec, "slurm", "python")
    env = variables_again(spec)
    options = parser.parse_args(words[3:])
    again = job_spec(options, env)
    for field in ("command", "num_workers", "num_servers", "settings", "env", "server_env"):
        assert getattr(again, field) == getattr(spec, field), field
    for field in (
        "worker_env",
        "workdir",
        "output_dir",
        "max_restarts",
        "launch_timeout_s",
        "grace_s",
    ):
        assert getattr(again, field) == getattr(spec, field), field


def test_values_are_in_the_environment_only():
    spec = job(env={"PASSWORD": "very private"})
    assert "very private" not in " ".join(run_again(spec, "sge", "python"))
    env = variables_again(spec)
    assert env["PASSWORD"] == "very private"
    assert SECRET not in env.values()
    assert env["TOKEN"] == "not to be shown"


def test_what_has_two_values():
    with pytest.raises(ConfigError, match="A has several values"):
        variables_again(job(env={"A": "1"}, worker_env={"A": "2"}))
    assert variables_again(job(env={"A": "1"}, worker_env={"A": "1"}))["A"] == "1"


def test_fields_of_flags_are_in_the_environment():
    spec = job(node_fields={"kvstore": "dist_async", "secret": SECRET, "job": "job-1"})
    assert variables_again(spec)["BIREME_KVSTORE"] == "dist_async"
