"""What a launcher writes for each process is what the process reads."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.launch.environment import Meeting, meeting_variables, told
from bireme.launch.hosts import Host
from bireme.launch.job import JobSpec
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.launch.seats import WORLD_VARIABLES
from bireme.settings import JobSettings, NodeSettings
from bireme.types import SCHEDULER, DeathPolicy, server, worker

SECRET = "0123456789abcdef"
MEETING = Meeting(
    scheduler_host="127.0.0.1",
    scheduler_port=9091,
    store_host="127.0.0.1",
    store_port=29500,
    engine_port=29501,
)
HERE = (THIS_MACHINE,)


def spec(**options):
    defaults = {
        "command": ("python", "train.py"),
        "num_workers": 2,
        "num_servers": 1,
        "node_fields": {"secret": SECRET, "job": "job-1"},
    }
    return JobSpec(**{**defaults, **options})


def environments(inherited=None, hosts=HERE, **options):
    plan = plan_on(spec(inherited=inherited or {}, **options), hosts)
    return {
        process.node: told(plan.base_for(host), process.env, process.node, MEETING, threads=1)
        for host in plan.hosts
        for process in host.processes
    }


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.sampled_from(DeathPolicy))
def test_every_node_reads_what_the_job_says(num_workers, num_servers, num_hosts, policy):
    settings = JobSettings(death_policy=policy, barrier_timeout_s=7)
    hosts = [Host(name=f"h{index}") for index in range(num_hosts)]
    counts = {"num_workers": num_workers, "num_servers": num_servers}
    made = environments(hosts=hosts, settings=settings, **counts)
    assert len(made) == 1 + num_servers + num_workers
    for node, env in made.items():
        read = NodeSettings.from_env(env)
        assert read.node == node
        assert (read.num_workers, read.num_servers) == (num_workers, num_servers)
        assert (read.secret, read.job) == (SECRET, "job-1")
        assert read.scheduler_address == "tcp://127.0.0.1:9091"
        assert JobSettings.from_env(env) == settings


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
    for node, env in environments(inherited).items():
        read = NodeSettings.from_env(env)
        assert read.node == node
        assert (read.host, read.bind, read.listen_fd) == ("", "", None)
        assert JobSettings.from_env(env).death_policy is DeathPolicy.ABORT
        assert env["HOME"] == "/root"


def test_a_job_without_servers():
    made = environments({"RANK": "9", "BIREME_NUM_SERVERS": "3"}, num_workers=3, num_servers=0)
    assert list(made) == [worker(0), worker(1), worker(2)]
    env = made[worker(2)]
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("2", "3", "2")
    assert (env["HOROVOD_RANK"], env["BIREME_RANK"], env["DMLC_TASK_ID"]) == ("2", "2", "2")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", "29500")
    assert (env["BIREME_SECRET"], env["BIREME_JOB"]) == (SECRET, "job-1")
    assert env["BIREME_KVSTORE"] == "allreduce"
    # Where its plan holds for any number of servers, it names none.
    plan = plan_on(spec(num_servers=0), HERE)
    later = meeting_variables(worker(0), Meeting(store_host="a", store_port=1, engine_port=2))
    env = {**plan.hosts[0].processes[0].env, **later}
    with pytest.raises(ConfigError, match="without BIREME_NUM_SERVERS"):
        NodeSettings.from_env(env)


def test_a_script_that_names_no_store_gets_one_that_needs_this_job():
    made = environments(num_servers=2)
    assert {made[node]["BIREME_KVSTORE"] for node in made} == {"dist_sync"}
    assert environments(num_servers=0)[worker(0)]["BIREME_KVSTORE"] == "allreduce"


def test_a_store_type_of_the_users_in_a_job_without_servers():
    fields = {"secret": SECRET, "kvstore": "device"}
    assert environments(num_servers=0, node_fields=fields)[worker(0)]["BIREME_KVSTORE"] == "device"


def test_only_workers_have_a_place_in_the_world():
    made = environments({"RANK": "9", "HOROVOD_RANK": "9"})
    assert made[worker(1)].keys() >= WORLD_VARIABLES
    assert not made[server(0)].keys() & WORLD_VARIABLES
    assert not made[SCHEDULER].keys() & WORLD_VARIABLES


def test_scripts_for_mxnet_find_their_variables():
    env = environments()[worker(1)]
    assert env["DMLC_ROLE"] == "worker"
    assert env["DMLC_NUM_WORKER"] == "2"
    assert env["DMLC_NUM_SERVER"] == "1"
    assert (env["DMLC_PS_ROOT_URI"], env["DMLC_PS_ROOT_PORT"]) == ("127.0.0.1", "9091")
    assert env["DMLC_TASK_ID"] == "1"


def test_local_ranks_count_the_workers_of_a_host():
    made = environments(hosts=[Host(name="a", slots=1), Host(name="b", slots=2)], num_workers=3)
    places = [(made[worker(rank)], rank) for rank in range(3)]
    assert [NodeSettings.from_env(env).local_rank for env, _ in places] == [0, 0, 1]
    assert [NodeSettings.from_env(env).local_size for env, _ in places] == [1, 2, 2]
    assert [env["HOROVOD_HOSTNAME"] for env, _ in places] == ["a", "b", "b"]
    assert [env["HOROVOD_CROSS_RANK"] for env, _ in places] == ["0", "1", "0"]


def test_roles_have_variables_of_their_own():
    made = environments(env={"A": "1"}, server_env={"A": "2"}, worker_env={"B": "3"})
    assert (made[server(0)]["A"], made[SCHEDULER]["A"]) == ("2", "2")
    assert (made[worker(0)]["A"], made[worker(0)]["B"]) == ("1", "3")
    assert "B" not in made[server(0)]


def test_which_hosts_are_here():
    hosts = [Host(name="leda", slots=1), Host(name="localhost", slots=1), Host(name="b", slots=1)]
    plan = plan_on(spec(num_workers=3, here="leda"), hosts)
    assert [host.is_here for host in plan.hosts] == [True, True, False]
    assert not plan.is_local
    assert plan.host_of(worker(2)).host.name == "b"
    assert plan.hosts[0].has_scheduler
    assert plan.hosts[0].has_store
    with pytest.raises(KeyError):
        plan.host_of(worker(9))


def test_another_login_on_this_machine_is_elsewhere():
    hosts = [
        Host(name="localhost", slots=1),
        Host(name="leda", slots=1, user="ann"),
        Host(name="127.0.0.1", slots=1, port=2222),
    ]
    plan = plan_on(spec(num_workers=3, here="leda"), hosts)
    assert [host.is_here for host in plan.hosts] == [True, False, False]


def test_the_secret_is_not_shown():
    assert SECRET not in repr(plan_on(spec(), HERE))


def test_two_thousand_hosts_are_planned_within_a_second():
    inherited = {f"VARIABLE_{index}": "x" * 50 for index in range(100)}
    hosts = [Host(name=f"node{index:04}", slots=8) for index in range(2000)]
    begin_s = time.process_time()
    plan = plan_on(spec(num_workers=2000, num_servers=100, inherited=inherited), hosts[:2000])
    assert len(plan.processes) == 2101
    assert time.process_time() - begin_s < 1.0
