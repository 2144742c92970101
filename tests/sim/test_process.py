from bireme.core.calls import BarrierCall, PullCall, ReadyCall
from bireme.errors import BiremeError, JobAborted, StateError
from bireme.sim.cluster import Cluster
from bireme.types.nodes import server, worker
from bireme.wire.messages import JobConfig


def test_a_failed_call_is_raised_in_the_script():
    seen = []

    def script(user, rank):
        try:
            yield [PullCall(user.number(), ((0, 0),), 1.0)]
        except StateError as error:
            seen.append(str(error))
        yield [ReadyCall(user.number(), 5.0)]
        yield [PullCall(user.number(), ((0, 0),), 1.0)]

    cluster = Cluster(JobConfig(1, 1, 1), script)
    cluster.run(2.0)
    assert "not started" in seen[0]
    assert isinstance(cluster.user(0).error, BiremeError)
    assert cluster.user(0).done


def waiting(user, rank):
    yield [ReadyCall(user.number(), 5.0)]
    yield (
        [BarrierCall(user.number(), "never", 50.0)]
        if rank == 0
        else [ReadyCall(user.number(), 5.0)]
    )
    if rank:
        yield [BarrierCall(user.number(), "other", 50.0)]


def test_a_crash_closes_the_links_and_ends_the_job():
    cluster = Cluster(JobConfig(2, 1, 2), waiting)
    cluster.clock.at(1.0, cluster.processes[worker(1)].crash)
    cluster.run(20.0)
    assert cluster.exit_codes()[server(0)] == 1
    assert isinstance(cluster.user(0).error, JobAborted)
    assert "W[1] on host-w1" in str(cluster.user(0).error)
    assert cluster.user(0).durations_s[-1][1] < 2.0


def test_a_frozen_process_takes_its_events_when_it_is_thawed():
    cluster = Cluster(JobConfig(2, 1, 2, heartbeat_timeout_s=5.0), waiting)
    process = cluster.processes[worker(1)]
    cluster.clock.at(1.0, process.freeze)
    cluster.clock.at(1.1, process.freeze)
    cluster.clock.at(3.0, process.thaw)
    cluster.run(4.9)
    assert cluster.exit_codes()[worker(1)] is None
    cluster.clock.at(5.0, process.freeze)
    cluster.run(20.0)
    assert "W[1] on host-w1: silent" in str(cluster.user(0).error)
