"""The engine behind a process's allreduce stores: one, from the first store to the last."""

import socket

import pytest
import torch
from tests.collective.ranks import on_ranks

from bireme import kvstore
from bireme.errors import ConfigError
from bireme.kvstore.peers import Peers


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_stores_share_an_engine_until_the_last_is_closed():
    peers = Peers()
    one, two = (peers.create("allreduce", {}, {}) for _ in range(2))
    engine = one._collectives
    assert two._collectives is engine
    assert (one._prefix, two._prefix) == ("kvstore1.", "kvstore2.")
    one.close()
    one.close()
    two.barrier()
    two.close()
    three = peers.create("horovod", {}, {})
    assert three._collectives is not engine
    assert three.type == "horovod"
    three.close()


def test_there_are_no_options():
    with pytest.raises(ConfigError, match="takes no options, got staleness"):
        kvstore.create("allreduce", staleness=2)


def test_workers_meet_by_what_the_launcher_said_again_and_again():
    port = free_port()
    peers = [Peers(), Peers()]

    def run(rank):
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "BIREME_CPU_BACKEND": "gloo",
        }
        results = []
        for _ in range(3):
            with peers[rank].create("allreduce", env, {}) as store:
                store.init(0, torch.zeros(2))
                store.push(0, torch.ones(2))
                results.append(store.pull(0).tolist())
                store.barrier()
        return results

    assert on_ranks(2, run) == [[[2.0, 2.0]] * 3] * 2
