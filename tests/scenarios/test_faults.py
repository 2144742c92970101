"""Whole jobs on networks that drop, delay, duplicate and reorder, with deaths at any time."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.scenarios.jobs import (
    Counted,
    check_ended_well,
    check_like_reference,
    ended,
    run_job,
)

from bireme.sim.disturbance import Disturbance, Trouble
from bireme.sim.network import Faults
from bireme.sim.training import Training
from bireme.types.choices import Consistency
from bireme.types.nodes import NodeId, Role, server, worker
from bireme.wire.messages import DeathPolicy

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)

FAULTS = st.builds(
    Faults,
    drop=st.sampled_from([0.0, 0.05, 0.15]),
    duplicate=st.sampled_from([0.0, 0.1, 0.3]),
    least_delay_s=st.just(0.001),
    most_delay_s=st.sampled_from([0.001, 0.02, 0.05]),
    reorder=st.booleans(),
)

WORKERS = st.integers(1, 4)
SERVERS = st.integers(1, 3)


@st.composite
def troubles(draw, kinds, most):
    plan = []
    for _ in range(draw(st.integers(0, most))):
        kind = draw(st.sampled_from(kinds))
        at_s = draw(st.floats(0.0, 3.0))
        node = worker(draw(st.integers(0, 3)))
        if kind is Trouble.CUT and draw(st.booleans()):
            node = NodeId(Role.SERVER, 0)
        plan.append(Disturbance(at_s, kind, node, draw(st.integers(0, 9))))
        later_s = at_s + draw(st.floats(0.02, 1.0))
        if kind is Trouble.CRASH:
            plan.append(Disturbance(later_s, Trouble.RESTART, node))
        elif kind is Trouble.FREEZE:
            plan.append(Disturbance(min(later_s, at_s + 0.4), Trouble.THAW, node))
    return plan


APART = st.sampled_from([None, 2, 3, 5])


def of_workers(plan, num_workers):
    return [each for each in plan if each.node.rank < num_workers]


@settings(max_examples=25, phases=QUICK)
@given(FAULTS, WORKERS, SERVERS, st.booleans(), APART, st.booleans(), st.integers(0, 10_000))
def test_a_rough_network_changes_no_bit(
    faults, num_workers, num_servers, pushpull, apart, bunched, seed
):
    training = Training(
        num_steps=6, pushpull=pushpull, change_rate_at=3, apart_every=apart, bunched=bunched
    )
    cluster = run_job(
        training, num_workers=num_workers, num_servers=num_servers, faults=faults, seed=seed
    )
    check_ended_well(cluster)
    check_like_reference(cluster, training)


@pytest.mark.slow
@settings(max_examples=40, phases=QUICK)
@given(
    FAULTS,
    st.integers(2, 4),
    st.integers(1, 2),
    troubles([Trouble.CRASH, Trouble.CUT, Trouble.FREEZE], 5),
    st.booleans(),
    APART,
    st.booleans(),
    st.integers(0, 10_000),
)
def test_replaced_workers_change_no_bit(
    faults, num_workers, num_servers, plan, pushpull, apart, bunched, seed
):
    training = Training(
        num_steps=6, pushpull=pushpull, change_rate_at=3, apart_every=apart, bunched=bunched
    )
    cluster = run_job(
        training,
        num_workers=num_workers,
        num_servers=num_servers,
        policy=DeathPolicy.WAIT,
        faults=faults,
        plan=of_workers(plan, num_workers),
        seed=seed,
    )
    check_ended_well(cluster)
    check_like_reference(cluster, training)


@pytest.mark.slow
@settings(max_examples=40, phases=QUICK)
@given(
    FAULTS,
    st.integers(2, 4),
    troubles([Trouble.CRASH, Trouble.CUT], 4),
    st.sampled_from([DeathPolicy.WAIT, DeathPolicy.CONTINUE]),
    APART,
    st.booleans(),
    st.integers(0, 10_000),
)
def test_each_contribution_counts_once_in_the_canonical_order(
    faults, num_workers, plan, policy, apart, bunched, seed
):
    counted = Counted(num_workers)
    training = Training(
        num_steps=5,
        length=counted.length,
        rate=None,
        gradient=counted,
        apart_every=apart,
        bunched=bunched,
    )
    cluster = run_job(
        training,
        num_workers=num_workers,
        policy=policy,
        faults=faults,
        plan=of_workers(plan, num_workers),
        seed=seed,
        slice_bytes=1 << 20,
    )
    counted.check_rounds(cluster)
    if policy is DeathPolicy.WAIT:
        check_ended_well(cluster)
        rounds = [totals for values in cluster.values for totals in values.history.values()]
        assert all(
            len(totals) == 5 and all(all(total[1:]) for total in totals) for totals in rounds
        )
    else:
        ended(cluster)


@pytest.mark.slow
@settings(max_examples=30, phases=QUICK)
@given(
    FAULTS,
    st.integers(1, 4),
    troubles([Trouble.CRASH, Trouble.CUT, Trouble.FREEZE], 4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_asynchronous_pushes_are_applied_once_each(
    faults, num_workers, plan, pushpull, bunched, seed
):
    counted = Counted(num_workers)
    training = Training(
        num_steps=5,
        length=counted.length,
        rate=1.0,
        gradient=counted,
        pushpull=pushpull,
        bunched=bunched,
        consistency=Consistency.ASYNC,
    )
    cluster = run_job(
        training,
        num_workers=num_workers,
        policy=DeathPolicy.WAIT,
        faults=faults,
        plan=of_workers(plan, num_workers),
        seed=seed,
        slice_bytes=1 << 20,
    )
    check_ended_well(cluster)
    counted.check_pushes(cluster, 5)


@settings(max_examples=25, phases=QUICK)
@given(
    FAULTS,
    st.sampled_from([worker(0), worker(2), server(0), server(1)]),
    st.floats(0.0, 0.6),
    st.integers(0, 10_000),
)
def test_by_default_any_death_ends_the_job_with_its_name(faults, victim, at_s, seed):
    training = Training(num_steps=100_000, timeout_s=30.0)
    plan = [Disturbance(at_s, Trouble.CRASH, victim)]
    cluster = run_job(training, faults=faults, plan=plan, seed=seed, start_timeout_s=20.0)
    assert ended(cluster).exit_code == 1
    assert str(victim) in ended(cluster).text
    for node, process in cluster.processes.items():
        if node != victim:
            assert process.exit is not None, f"{node} goes on"
            assert process.exit.exit_code == 1
            if faults.drop == 0.0 and at_s > 0.5:
                assert str(victim) in process.exit.text
