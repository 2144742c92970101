"""Jobs whose machines have relays: the same bits, whatever the network and whoever leaves."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.scenarios.jobs import (
    check_ended_well,
    check_like_reference,
    run_job,
)

from bireme.errors import WaitTimeout
from bireme.sim.cluster import Cluster
from bireme.sim.disturbance import Disturbance, Trouble, disturb
from bireme.sim.network import Faults, Network
from bireme.sim.training import Training
from bireme.types.choices import Consistency
from bireme.types.nodes import worker
from bireme.wire.messages import JobConfig, Pull

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)

FAULTS = st.builds(
    Faults,
    drop=st.sampled_from([0.0, 0.05, 0.15]),
    duplicate=st.sampled_from([0.0, 0.1, 0.3]),
    least_delay_s=st.just(0.001),
    most_delay_s=st.sampled_from([0.001, 0.02, 0.05]),
    reorder=st.booleans(),
)


def relayed_job(training, num_workers, num_servers=3, workers_per_host=2, **options):
    return run_job(
        training,
        num_workers=num_workers,
        num_servers=num_servers,
        workers_per_host=workers_per_host,
        relay=True,
        **options,
    )


@pytest.mark.parametrize("bunched", [False, True])
@pytest.mark.parametrize("pushpull", [False, True])
@pytest.mark.parametrize(
    ("num_workers", "workers_per_host"), [(2, 2), (4, 2), (6, 3), (7, 3), (8, 4), (5, 4)]
)
def test_sums_are_those_without_relays(num_workers, workers_per_host, pushpull, bunched):
    training = Training(num_steps=6, change_rate_at=3, pushpull=pushpull, bunched=bunched)
    cluster = relayed_job(training, num_workers, workers_per_host=workers_per_host)
    check_ended_well(cluster)
    check_like_reference(cluster, training)
    assert len(cluster.relays) == num_workers // workers_per_host + (
        num_workers % workers_per_host > 1
    )


@pytest.mark.parametrize(("per_host", "num_taken"), [(1, 8), (2, 4), (4, 2), (3, 5)])
def test_a_machine_pushes_once_for_all_its_workers(per_host, num_taken):
    training = Training(num_steps=10)
    hosts = -(-8 // per_host)
    cluster = relayed_job(
        training, 8, num_servers=2 * hosts, workers_per_host=per_host, slice_bytes=1024
    )
    check_like_reference(cluster, training)
    holding = [values for values in cluster.values[hosts:] if values.cells]
    assert holding
    # Machines of three add up two neighbours of the tree, and send the third by itself.
    for values in holding:
        assert len(values.cells) == 1
        assert values.num_taken == training.num_steps * num_taken


@pytest.mark.parametrize("apart", [2, 3, 5])
def test_pushes_in_different_messages_go_directly(apart):
    training = Training(num_steps=8, apart_every=apart)
    cluster = relayed_job(training, 4, slice_bytes=1024)
    check_ended_well(cluster)
    check_like_reference(cluster, training)
    assert cluster.clock.now_s < 100.0


def test_keys_that_are_not_synchronous_go_directly():
    training = Training(num_steps=4, consistency=Consistency.ASYNC)
    cluster = relayed_job(training, 4)
    check_ended_well(cluster)
    texts = [each.text for each in cluster.processes[worker(1)].log]
    assert any("directly" in text for text in texts)
    assert sum(values.num_taken for values in cluster.values) > 0


@settings(max_examples=30, phases=QUICK)
@given(
    FAULTS,
    st.integers(2, 8),
    st.integers(2, 4),
    st.booleans(),
    st.sampled_from([None, 2, 3, 5]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_a_rough_network_changes_no_bit(
    faults, num_workers, per_host, pushpull, apart, bunched, seed
):
    # A push takes up to eight messages here, any of which may be lost many times.
    training = Training(
        num_steps=6,
        pushpull=pushpull,
        change_rate_at=3,
        apart_every=apart,
        bunched=bunched,
        timeout_s=400.0,
    )
    cluster = relayed_job(
        training, num_workers, workers_per_host=per_host, faults=faults, seed=seed, until_s=2000.0
    )
    check_ended_well(cluster)
    check_like_reference(cluster, training)


@settings(max_examples=40, phases=QUICK)
@given(
    st.lists(
        st.builds(
            Disturbance,
            st.floats(0.0, 0.4),
            st.sampled_from([Trouble.CUT_RELAY, Trouble.CUT_RELAY, Trouble.END_RELAY, Trouble.CUT]),
            st.sampled_from([worker(0), worker(2)]),
            st.integers(0, 20),
        ),
        max_size=5,
    ),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_broken_links_of_a_relay_change_no_bit(plan, bunched, seed):
    training = Training(num_steps=12, bunched=bunched)
    faults = Faults(least_delay_s=0.001, most_delay_s=0.01)
    cluster = relayed_job(training, 4, faults=faults, plan=plan, seed=seed)
    check_ended_well(cluster)
    check_like_reference(cluster, training)


@pytest.mark.parametrize("at_s", [0.02, 0.05, 0.08, 0.11, 0.14, 0.17])
def test_a_relay_that_ends_amid_rounds_loses_nothing(at_s):
    training = Training(num_steps=20)
    faults = Faults(least_delay_s=0.001, most_delay_s=0.01)
    plan = [Disturbance(at_s, Trouble.END_RELAY, worker(0))]
    cluster = relayed_job(training, 4, faults=faults, plan=plan)
    check_ended_well(cluster)
    check_like_reference(cluster, training)


def frozen_job(*, timeout_s, thaw_s):
    """Run a job of two machines in which W[1] stops amid its steps for a while."""
    training = Training(num_steps=30, timeout_s=timeout_s)
    config = JobConfig(4, 3, 4, slice_bytes=16, heartbeat_timeout_s=300.0, resend_timeout_s=1.0)
    cluster = Cluster(
        config, training, workers_per_host=2, faults=Faults(least_delay_s=0.001, most_delay_s=0.01)
    )
    disturb(
        cluster,
        [
            Disturbance(0.6, Trouble.FREEZE, worker(1)),
            Disturbance(thaw_s, Trouble.THAW, worker(1)),
        ],
    )
    cluster.run(500.0)
    return cluster, training


def test_a_push_that_waited_long_for_a_neighbour_goes_alone():
    cluster, training = frozen_job(timeout_s=60.0, thaw_s=25.0)
    check_ended_well(cluster)
    check_like_reference(cluster, training)
    texts = [each.text for each in cluster.processes[worker(0)].relay.log]
    assert any("it waited for 10 s" in text for text in texts)


def test_an_error_says_for_whom_a_relay_waits():
    cluster, _ = frozen_job(timeout_s=3.0, thaw_s=60.0)
    error = cluster.user(0).error
    assert isinstance(error, WaitTimeout)
    assert "the relay of this machine waits in round" in str(error)
    assert "W[1] missing" in str(error)


@pytest.mark.parametrize("relay", [False, True])
def test_a_machine_pulls_once_for_all_its_workers(relay, monkeypatch):
    seen = []
    send = Network.send

    def counted(network, link, message, payload):
        seen.extend([message] if type(message) is Pull else [])
        send(network, link, message, payload)

    monkeypatch.setattr(Network, "send", counted)
    # One pull at the beginning and one after each step, beside the pushes.
    training = Training(num_steps=6, num_keys=8, pushpull=False)
    cluster = run_job(
        training, num_workers=4, num_servers=4, workers_per_host=2, relay=relay, slice_bytes=1024
    )
    check_ended_well(cluster)
    check_like_reference(cluster, training)
    holding = [rank for rank, values in enumerate(cluster.values) if values.cells]
    assert max(holding) >= 2
    # The first two servers are beside two workers each, who reach them without a link.
    by_server = [3 if rank < 2 else 2 for rank in holding] if relay else [4] * len(holding)
    assert len(seen) == 7 * sum(by_server)


@pytest.mark.parametrize("seed", range(10))
def test_pulls_by_a_relay_end_whatever_the_network_does(seed):
    faults = Faults(
        drop=0.15, duplicate=0.3, least_delay_s=0.001, most_delay_s=0.05, reorder=bool(seed % 2)
    )
    training = Training(num_steps=4, pushpull=False, num_keys=2)
    cluster = relayed_job(training, 4, seed=seed, faults=faults)
    check_ended_well(cluster)
    check_like_reference(cluster, training)
