"""A job is checked when it is described, before anybody plans it."""

import pytest

from bireme.errors import ConfigError
from bireme.launch.job import JobSpec, Resources
from bireme.settings import JobSettings
from bireme.types import SCHEDULER, DeathPolicy, Role, server, worker

SECRET = "0123456789abcdef"


def spec(**options):
    defaults = {"command": ("python", "train.py"), "num_workers": 2, "num_servers": 1}
    return JobSpec(**{**defaults, **options})


def test_nodes_in_the_order_of_their_start():
    assert spec().nodes() == [SCHEDULER, server(0), worker(0), worker(1)]
    assert spec(num_servers=0).nodes() == [worker(0), worker(1)]


def test_roles_have_variables_of_their_own():
    job = spec(env={"A": "1", "B": "1"}, server_env={"A": "2"}, worker_env={"B": "3", "C": "4"})
    assert job.env_of(Role.WORKER) == {"A": "1", "B": "3", "C": "4"}
    assert job.env_of(Role.SERVER) == job.env_of(Role.SCHEDULER) == {"A": "2", "B": "1"}


def test_what_is_inherited_and_kept_is_not_shown():
    shown = repr(spec(inherited={"TOKEN": "abc"}, node_fields={"secret": SECRET}))
    assert "abc" not in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"command": ()}, "a job needs a command"),
        ({"num_workers": 0}, "num_workers must be >= 1 and <= 1048576, got 0"),
        ({"num_servers": -1}, "num_servers must be >= 0 and <= 1048576, got -1"),
        ({"num_workers": 10**9}, "got 1000000000"),
        ({"max_restarts": -1}, "max_restarts must be >= 0"),
        ({"grace_s": 0.0}, "grace_s must be > 0"),
        ({"launch_timeout_s": 0.0}, "launch_timeout_s must be > 0"),
        ({"launch_timeout_s": float("nan")}, "launch_timeout_s must be > 0"),
        (
            {"num_servers": 0, "settings": JobSettings(death_policy=DeathPolicy.WAIT)},
            "wait needs servers: -s 1",
        ),
        ({"num_servers": 0, "scheduler_host": "leda"}, "no scheduler to put on leda"),
        ({"env": {"MASTER_PORT": "1"}}, "sets MASTER_PORT"),
        ({"worker_env": {"RANK": "1"}}, "sets RANK"),
        ({"env": {"DMLC_ROLE": "worker", "BIREME_RANK": "0"}}, "sets BIREME_RANK, DMLC_ROLE"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        spec(**options)


def test_resources_are_not_negative():
    with pytest.raises(ConfigError, match="gpus must be >= 0, got -1"):
        Resources(gpus=-1)
