"""In the simulator some events take the short way, and nothing shows."""

import pytest

from bireme.sim.cluster import Cluster
from bireme.sim.network import Faults
from bireme.sim.training import Training
from bireme.wire.messages import JobConfig


def job(haste, faults=None):
    cluster = Cluster(
        JobConfig(2, 1, 2, slice_bytes=1 << 20, resend_timeout_s=0.4),
        Training(num_steps=8, pushpull=True, bunched=True),
        seed=3,
        faults=faults,
        keep_history=True,
    )
    cluster.haste = haste
    cluster.run(until_s=100.0)
    assert set(cluster.exit_codes().values()) == {0}
    return cluster


def hastened(cluster):
    return sum(process.num_hastened for process in cluster.processes.values())


@pytest.mark.parametrize("faults", [None, Faults(drop=0.1, duplicate=0.2)])
def test_jobs_come_to_the_same_values_whichever_way_events_take(faults):
    jobs = [job(haste, faults) for haste in (0.0, 0.5, 1.0)]
    assert hastened(jobs[0]) == 0
    assert 0 < hastened(jobs[1]) < hastened(jobs[2])
    values = [[user.values for user in map(each.user, (0, 1))] for each in jobs]
    assert values[0] == values[1] == values[2]
