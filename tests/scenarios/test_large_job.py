"""A thousand workers and a hundred servers run on the same state machines, in seconds."""

import gc

import pytest

from bireme.core.calls import DeclareCall, InitCall, LeaveCall, PushCall, ReadyCall
from bireme.sim.cluster import Cluster
from bireme.sim.values import pack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import Role
from bireme.wire.messages import InitEntry, JobConfig, KeyDecl

NUM_WORKERS = 1000
NUM_SERVERS = 100
NUM_STEPS = 3
LIMIT_S = 300.0


def script(user, rank):
    """Push one number to every server and fetch the sum, three times."""
    yield [ReadyCall(user.number(), LIMIT_S)]
    decls = tuple(KeyDecl(key, (1,), DType.FLOAT64) for key in range(NUM_SERVERS))
    declare = DeclareCall(user.number(), 0, decls, LIMIT_S)
    yield [declare]
    if rank == 0:
        yield [InitCall(user.number(), 0, tuple(map(zero, range(NUM_SERVERS))), LIMIT_S)]
    entries = tuple((key, 0, pack([1.0]), 8, "raw", Layout.DENSE, 0) for key in range(NUM_SERVERS))
    for _ in range(NUM_STEPS):
        yield [PushCall(user.number(), entries, LIMIT_S, want_value=True)]
    yield [LeaveCall(user.number(), LIMIT_S)]


def zero(key_id):
    entry = InitEntry(key_id, 0, DType.FLOAT64, 1, 1, Layout.DENSE, Consistency.SYNC, 0)
    return entry, None


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_thousand_workers_and_a_hundred_servers():
    config = JobConfig(NUM_WORKERS, NUM_SERVERS, NUM_WORKERS, heartbeat_interval_s=1.0)
    cluster = Cluster(config, script, check_codec=False)
    gc.disable()  # nothing dies in a cycle here, and looking for one takes half of the time
    try:
        cluster.run(until_s=100.0)
    finally:
        gc.enable()
    assert set(cluster.exit_codes().values()) == {0}
    for values in cluster.values:
        assert [cell.value for cell in values.cells.values()] == [[float(NUM_WORKERS)]]
        assert values.most_partials <= NUM_WORKERS
    for node, process in cluster.processes.items():
        if node.role is Role.WORKER:
            assert process.user.error is None
            assert {version for version, _ in process.user.values.values()} == {NUM_STEPS}
