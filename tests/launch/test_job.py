"""What a launcher writes for each process is what the process reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.launch.job import JobSpec, Meeting, identity_variables, plan
from bireme.launch.seats import WORLD_VARIABLES, Store
from bireme.settings import JobSettings, NodeSettings
from bireme.types import SCHEDULER, DeathPolicy, server, worker

SECRET = "0123456789abcdef"
STORE = Store(host="127.0.0.1", port=29500, engine_port=29501)
MEETING = Meeting(host="127.0.0.1", port=9091, store=STORE, listen_fd=5)


def spec(**options):
    defaults = {
        "command": ("python", "train.py"),
        "num_workers": 2,
        "num_servers": 1,
        "node_fields": {"secret": SECRET, "job": "job-1"},
    }
    return JobSpec(**{**defaults, **options})


def plans(inherited=None, num_cores=8, **options):
    return {
        each.node: each
        for each in plan(spec(**options), MEETING, inherited or {}, num_cores=num_cores)
    }


def test_scheduler_servers_and_workers_in_this_order():
    assert list(plans()) == [SCHEDULER, server(0), worker(0), worker(1)]


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from(DeathPolicy))
def test_every_node_reads_what_the_job_says(num_workers, num_servers, policy):
    settings = JobSettings(death_policy=policy, barrier_timeout_s=7)
    made = plans(num_workers=num_workers, num_servers=num_servers, settings=settings)
    assert len(made) == 1 + num_servers + num_workers
    for node, each in made.items():
        read = NodeSettings.from_env(each.env)
        assert read.node == node
        assert (read.num_workers, read.num_servers) == (num_workers, num_servers)
        assert (read.secret, read.job) == (SECRET, "job-1")
        assert read.scheduler_address == "tcp://127.0.0.1:9091"
        assert JobSettings.from_env(each.env) == settings


def test_whatever_is_inherited():
    inherited = {
        "BIREME_ROLE": "server",
        "BIREME_RANK": "9",
        "BIREME_LISTEN_FD": "99",
        "BIREME_HOST": "elsewhere",
        "BIREME_ON_WORKER_DEATH": "wait",
        "DMLC_ROLE": "server",
        "DMLC_NODE_HOST": "elsewhere",
        "DMLC_USE_KUBERNETES": "1",
        "HOME": "/root",
    }
    for node, each in plans(inherited).items():
        read = NodeSettings.from_env(each.env)
        assert read.node == node
        assert (read.host, read.bind) == ("", "")
        assert JobSettings.from_env(each.env).death_policy is DeathPolicy.ABORT
        assert each.env["HOME"] == "/root"


def test_a_job_without_servers():
    made = plans({"RANK": "9", "BIREME_NUM_SERVERS": "3"}, num_workers=3, num_servers=0)
    assert list(made) == [worker(0), worker(1), worker(2)]
    env = made[worker(2)].env
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("2", "3", "2")
    assert (env["HOROVOD_RANK"], env["BIREME_RANK"], env["DMLC_TASK_ID"]) == ("2", "2", "2")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", "29500")
    assert (env["BIREME_SECRET"], env["BIREME_JOB"]) == (SECRET, "job-1")
    assert env["BIREME_KVSTORE"] == "allreduce"
    with pytest.raises(ConfigError, match=r"without BIREME_NUM_SERVERS .* BIREME_SCHEDULER_HOST"):
        NodeSettings.from_env(env)


def test_a_store_type_of_the_users_in_a_job_without_servers():
    fields = {"secret": SECRET, "kvstore": "device"}
    env = plans(num_servers=0, node_fields=fields)[worker(0)].env
    assert env["BIREME_KVSTORE"] == "device"


def test_only_workers_have_a_place_in_the_world():
    made = plans({"RANK": "9", "HOROVOD_RANK": "9"})
    assert made[worker(1)].env.keys() >= WORLD_VARIABLES
    assert not made[server(0)].env.keys() & WORLD_VARIABLES
    assert not made[SCHEDULER].env.keys() & WORLD_VARIABLES


def test_only_the_scheduler_inherits_the_socket():
    fds = {node: NodeSettings.from_env(each.env).listen_fd for node, each in plans().items()}
    assert fds == {SCHEDULER: 5, server(0): None, worker(0): None, worker(1): None}


def test_scripts_for_mxnet_find_their_variables():
    env = plans()[worker(1)].env
    assert env["DMLC_ROLE"] == "worker"
    assert env["DMLC_NUM_WORKER"] == "2"
    assert env["DMLC_NUM_SERVER"] == "1"
    assert (env["DMLC_PS_ROOT_URI"], env["DMLC_PS_ROOT_PORT"]) == ("127.0.0.1", "9091")
    assert env["DMLC_TASK_ID"] == "1"


def test_local_ranks_count_workers():
    for rank in (0, 1):
        read = NodeSettings.from_env(plans()[worker(rank)].env)
        assert (read.local_rank, read.local_size) == (rank, 2)


@pytest.mark.parametrize(("num_cores", "threads"), [(8, "2"), (2, "1"), (1, "1"), (64, "21")])
def test_processes_share_the_cores(num_cores, threads):
    env = plans(num_cores=num_cores)[worker(0)].env
    assert env["OMP_NUM_THREADS"] == env["NUMBA_NUM_THREADS"] == threads


def test_the_user_comes_before_the_launcher():
    env = plans({"OMP_NUM_THREADS": "5", "A": "1"}, env={"A": "2", "NUMBA_NUM_THREADS": "7"})
    assert env[worker(0)].env["OMP_NUM_THREADS"] == "5"
    assert env[worker(0)].env["NUMBA_NUM_THREADS"] == "7"
    assert env[worker(0)].env["A"] == "2"


def test_output_comes_at_once():
    assert plans()[worker(0)].env["PYTHONUNBUFFERED"] == "1"


def test_the_secret_is_not_shown():
    assert SECRET not in repr(plans()[worker(0)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"command": ()}, "a job needs a command"),
        ({"num_workers": 0}, "num_workers must be >= 1 and <= 1048576, got 0"),
        ({"num_servers": -1}, "num_servers must be >= 0 and <= 1048576, got -1"),
        (
            {"num_servers": 0, "settings": JobSettings(death_policy=DeathPolicy.WAIT)},
            "wait needs servers: -s 1",
        ),
        ({"env": {"MASTER_PORT": "1"}}, "sets MASTER_PORT"),
        ({"num_workers": 10**9}, "got 1000000000"),
        ({"max_restarts": -1}, "max_restarts must be >= 0"),
        ({"env": {"DMLC_ROLE": "worker", "BIREME_RANK": "0"}}, "sets BIREME_RANK, DMLC_ROLE"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        spec(**options)


def test_identity_is_known_in_both_spellings():
    assert {"BIREME_ROLE", "DMLC_ROLE", "BIREME_SECRET", "DMLC_NODE_HOST"} <= identity_variables()
    assert "BIREME_SLICE_BYTES" not in identity_variables()
