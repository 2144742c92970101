import pytest

from bireme.sim.cluster import Cluster
from bireme.sim.training import Training, reference
from bireme.types.nodes import server, worker
from bireme.wire.messages import JobConfig


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
@pytest.mark.parametrize("num_servers", [1, 3])
def test_a_job_trains_like_the_reference(num_workers, num_servers):
    training = Training()
    cluster = Cluster(JobConfig(num_workers, num_servers, num_workers, slice_bytes=16), training)
    cluster.run(30.0)
    assert set(cluster.exit_codes().values()) == {0}
    cells = {slot: cell for values in cluster.values for slot, cell in values.cells.items()}
    wanted = reference(training, num_workers, {s: len(c.value) for s, c in cells.items()})
    assert {slot: cell.value for slot, cell in cells.items()} == wanted


def test_two_runs_of_a_seed_are_the_same():
    runs = []
    for _ in range(2):
        cluster = Cluster(JobConfig(2, 2, 2), Training(), seed=5)
        cluster.run(30.0)
        runs.append((cluster.network.num_messages, cluster.clock.num_events))
    assert runs[0] == runs[1]


def test_control_traffic_does_not_grow_with_keys():
    numbers = []
    for num_keys in (1, 50):
        cluster = Cluster(JobConfig(2, 1, 2), Training(num_keys=num_keys))
        cluster.run(30.0)
        numbers.append(cluster.network.num_messages)
    assert numbers[1] <= numbers[0] + 4


def test_processes_are_found_by_name():
    cluster = Cluster(JobConfig(1, 1, 1), Training())
    assert cluster.processes[server(0)].user is None
    assert cluster.processes[worker(0)].user is cluster.user(0)
    assert cluster.exit_codes()[worker(0)] is None
