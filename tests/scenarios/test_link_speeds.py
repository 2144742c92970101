"""Links whose speed nobody states, under virtual time: what is measured, and what follows."""

import dataclasses

import pytest
from tests.scenarios.jobs import check_ended_well

from bireme.core.survey import Survey
from bireme.placement.links import Site, spread
from bireme.sim.cluster import Cluster
from bireme.sim.network import Faults
from bireme.sim.training import Training
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import SCHEDULER, server, worker
from bireme.wire.messages import JobConfig


def job(speeds, num_workers, *, seed=0, faults=None, **config):
    """Return a job with a server on each machine, and workers on the first ones."""
    settings = JobConfig(num_workers, len(speeds), num_workers, **config)
    links = {f"host-{number}": speed for number, speed in enumerate(speeds)}
    faults = dataclasses.replace(faults or Faults(), link_mbps=links)
    return Cluster(
        settings,
        Training(num_keys=1),
        seed=seed,
        faults=faults,
        workers_per_host=1,
    )


def ways(cluster):
    return cluster.processes[SCHEDULER].core._job.ways


@pytest.mark.parametrize(
    ("speeds", "num_workers"),
    [
        ((50,) * 4, 4),
        ((50, 50, 50, 50, 100, 50), 4),
        ((50, 50, 50, 25), 4),
        ((200, 200, 50, 50), 4),
        ((10, 10, 10, 20), 4),
        ((1000, 1000, 1000, 200), 3),
        ((50,) * 12, 6),
    ],
)
def test_shares_follow_links_that_nobody_stated(speeds, num_workers):
    cluster = job(speeds, num_workers)
    cluster.run(60.0)
    check_ended_well(cluster)
    found = ways(cluster)
    assert {way.source for way in found} == {"measured"}
    for way in found:
        assert way.mbps == pytest.approx(speeds[int(way.host.removeprefix("host-"))], rel=0.12)
    # The shares that follow take hardly longer on the true links than the best ones.
    sites = [Site(speed, int(number < num_workers), 1) for number, speed in enumerate(speeds)]
    shares = {way.host: way.share for way in found}
    busiest_s = max(
        (site.num_workers * (1 - share) + share * (num_workers - site.num_workers)) / site.speed
        for number, site in enumerate(sites)
        for share in (shares[f"host-{number}"],)
    )
    assert busiest_s <= 1.12 * spread(sites).duration


def test_a_link_between_two_is_as_fast_as_the_slower_end():
    cluster = job((200, 50), 2)
    cluster.run(60.0)
    assert [way.mbps for way in ways(cluster)] == [pytest.approx(50, rel=0.1)] * 2


def test_long_links_are_left_alone():
    cluster = job((50, 50), 2, faults=Faults(least_delay_s=0.03, most_delay_s=0.03))
    cluster.run(60.0)
    check_ended_well(cluster)
    assert {way.source for way in ways(cluster)} == {"unknown"}
    assert any("are not measured" in each.text for each in cluster.processes[SCHEDULER].log)


@pytest.mark.parametrize("seed", range(12))
def test_the_job_begins_whatever_the_network_does(seed):
    faults = Faults(
        drop=0.1, duplicate=0.1, least_delay_s=0.001, most_delay_s=0.004, reorder=bool(seed % 2)
    )
    cluster = job((50, 50, 100), 2, seed=seed, faults=faults, resend_timeout_s=0.3)
    cluster.run(200.0)
    check_ended_well(cluster)


def measuring(policy):
    cluster = job((50, 50, 50), 3, death_policy=policy)
    cluster.run(0.3)
    assert isinstance(cluster.processes[SCHEDULER].core._job.survey, Survey)
    return cluster


@pytest.mark.parametrize("node", [worker(1), server(1)])
def test_a_death_meanwhile_ends_the_job(node):
    cluster = measuring(DeathPolicy.ABORT)
    cluster.processes[node].crash()
    cluster.run(10.0)
    codes = cluster.exit_codes()
    assert {code for each, code in codes.items() if each != node} == {1}


def test_a_worker_that_comes_back_meanwhile_begins_it_anew():
    cluster = measuring(DeathPolicy.WAIT)
    cluster.processes[worker(1)].crash()
    cluster.run(2.0)
    cluster.start_worker(1)
    cluster.run(60.0)
    check_ended_well(cluster)
    assert [way.source for way in ways(cluster)] == ["measured"] * 3


def test_a_frozen_node_holds_it_up_for_a_moment_only():
    cluster = measuring(DeathPolicy.ABORT)
    cluster.processes[worker(2)].freeze()
    cluster.run(12.0)
    assert cluster.processes[SCHEDULER].core.view == 1
    cluster.processes[worker(2)].thaw()
    cluster.run(60.0)
    check_ended_well(cluster)
