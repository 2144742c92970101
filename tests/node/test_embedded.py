import threading

import pytest

from bireme.errors import JobError
from bireme.node.embedded import EmbeddedCluster, embedded_config
from bireme.settings import JobSettings
from bireme.types.dtypes import DType
from bireme.wire.messages import KeyDecl

LIMIT_S = 20.0


def test_the_config_takes_over_the_limits():
    config = embedded_config(JobSettings(barrier_timeout_s=7, slice_bytes=4096), 3, 2)
    assert (config.num_workers, config.num_servers, config.num_shards) == (3, 2, 3)
    assert (config.barrier_timeout_s, config.slice_bytes) == (7, 4096)


def test_a_job_lives_and_ends_in_threads():
    before = set(threading.enumerate())
    cluster = EmbeddedCluster(embedded_config(JobSettings(), 1, 2))
    client = cluster.client(0)
    start = client.ready(LIMIT_S)
    assert sorted(str(info.node) for info in start.nodes) == ["H", "S[0]", "S[1]", "W[0]"]
    assert client.rank == 0
    with pytest.raises(JobError, match="scheduler"):
        cluster.join(0.01)
    client.leave(LIMIT_S)
    cluster.join(LIMIT_S)
    assert set(threading.enumerate()) <= before


def test_two_jobs_do_not_disturb_each_other():
    clusters = [EmbeddedCluster(embedded_config(JobSettings(), 1, 1)) for _ in range(2)]
    clients = [cluster.client(0) for cluster in clusters]
    for client in clients:
        client.ready(LIMIT_S)
    decl = KeyDecl("w", (4,), DType.FLOAT32)
    assert [client.declare(0, [decl], LIMIT_S)[0].key_id for client in clients] == [0, 0]
    clients[0].leave(LIMIT_S)
    clusters[0].join(LIMIT_S)
    clients[1].barrier("still here", LIMIT_S)
    clients[1].leave(LIMIT_S)
    clusters[1].join(LIMIT_S)


def test_a_failed_worker_ends_the_job(caplog):
    cluster = EmbeddedCluster(embedded_config(JobSettings(), 1, 1))
    client = cluster.client(0)
    client.ready(LIMIT_S)
    client.leave(LIMIT_S, "out of ideas")
    cluster.join(LIMIT_S)
    assert any("out of ideas" in message for message in caplog.messages)
