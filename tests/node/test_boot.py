import os
import socket
import threading

import pytest

from bireme.errors import ConfigError, JobError
from bireme.node import boot
from bireme.node.boot import connect_worker, identity_of, job_config, run_node
from bireme.settings import JobSettings, NodeSettings, Security, TransportChoice
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import Role

LIMIT_S = 50.0
SECRET = "a secret of more than sixteen"


def settings(role: Role, rank: int = 0, port: int = 9999, **fields) -> NodeSettings:
    known = {
        "num_workers": 2,
        "num_servers": 1,
        "scheduler_host": "127.0.0.1",
        "secret": SECRET,
        "host": "127.0.0.1",
        "job": "test",
    }
    return NodeSettings(role=role, rank=rank, scheduler_port=port, **(known | fields))


def test_a_node_says_who_it_is():
    node = settings(Role.SERVER, 0, bandwidth=2.5)
    identity = identity_of(node, JobSettings(start_timeout_s=7), ("tcp://127.0.0.1:1",))
    assert (identity.role, identity.rank, identity.pid) == (Role.SERVER, 0, os.getpid())
    assert (identity.bandwidth, identity.start_timeout_s) == (2.5, 7)
    assert identity.addresses == ("tcp://127.0.0.1:1",)


def test_the_scheduler_settles_the_limits():
    job = JobSettings(death_policy=DeathPolicy.WAIT, pull_timeout_s=3, num_shards=8)
    config = job_config(settings(Role.SCHEDULER), job)
    assert (config.num_workers, config.num_servers, config.num_shards) == (2, 1, 8)
    assert (config.death_policy, config.pull_timeout_s) == (DeathPolicy.WAIT, 3)
    assert job_config(settings(Role.SCHEDULER), JobSettings()).num_shards == 2


def test_a_worker_is_no_role_to_run():
    with pytest.raises(ConfigError, match="worker"):
        run_node(settings(Role.WORKER), JobSettings())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("choice", list(TransportChoice))
def test_a_job_over_every_transport(choice):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], os.dup(listener.fileno())
    job = JobSettings(transport=choice, start_timeout_s=LIMIT_S)
    roles = [settings(Role.SCHEDULER, 0, port, listen_fd=fd), settings(Role.SERVER, 0, port)]
    ended: list[int] = []
    threads = [
        threading.Thread(target=lambda node=node: ended.append(run_node(node, job).exit_code))
        for node in roles
    ]
    for thread in threads:
        thread.start()
    clients = [connect_worker(settings(Role.WORKER, rank, port), job) for rank in range(2)]
    together(clients, lambda client: client.ready(LIMIT_S))
    assert [client.rank for client in clients] == [0, 1]
    together(clients, lambda client: client.barrier("here", LIMIT_S))
    together(clients, lambda client: client.leave(LIMIT_S))
    for thread in threads:
        thread.join(LIMIT_S)
    assert ended == [0, 0]


def together(clients, action) -> None:
    threads = [threading.Thread(target=action, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_socket_at_another_port_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = settings(Role.SCHEDULER, port=1, listen_fd=os.dup(listener.fileno()))
    with pytest.raises(ConfigError, match="BIREME_LISTEN_FD"):
        run_node(node, JobSettings())


def test_a_secret_from_a_file(tmp_path):
    path = tmp_path / "secret"
    node = settings(Role.WORKER, secret="", secret_file=str(path))
    with pytest.raises(ConfigError, match="secret"):
        connect_worker(node, JobSettings())
    path.write_text(SECRET)
    path.chmod(0o600)
    connect_worker(node, JobSettings())._transport.close()


def test_without_a_scheduler_the_wait_ends():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    node = settings(Role.WORKER, port=port, secret="", security=Security.OFF)
    client = connect_worker(node, JobSettings(start_timeout_s=0.2))
    # Which of the two limits is over first is open; both name the scheduler.
    with pytest.raises(JobError, match=rf"no link to H|scheduler|{port}"):
        client.ready(0.2)
    client.leave(0.1)


def test_an_interface_stands_for_the_host():
    node = boot._with_host(settings(Role.WORKER, host="", interface="lo"))
    assert node.host == "127.0.0.1"
    assert boot._with_host(settings(Role.WORKER, host="other", interface="lo")).host == "other"
    with pytest.raises(ConfigError, match="interface"):
        connect_worker(settings(Role.WORKER, host="", interface="no such one"), JobSettings())


def test_the_way_to_the_scheduler_says_which_address_is_ones_own():
    for host, ours in (("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1")):
        found = boot._outward_address(settings(Role.SERVER, host="", scheduler_host=host))
        assert found == ours
    with pytest.raises(ConfigError, match="no way from here to the scheduler's host 'no-such"):
        boot._outward_address(settings(Role.SERVER, host="", scheduler_host="no-such.invalid"))
