"""Bounded staleness in whole jobs: who waits for whom, on rough networks and with deaths."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenarios.jobs import Counted, check_ended_well, check_like_reference, ended, run_job
from tests.scenarios.test_faults import FAULTS, QUICK, of_workers, troubles

from bireme.core.calls import BarrierCall, PushCall
from bireme.errors import WaitTimeout
from bireme.sim.disturbance import Disturbance, Trouble
from bireme.sim.network import Faults
from bireme.sim.training import Training, initial
from bireme.types.choices import Consistency
from bireme.types.nodes import worker
from bireme.wire.messages import DeathPolicy

STEPS = 6


class Watched(Counted):
    """Counts who contributed, and checks each time what a worker has read before its step."""

    def __init__(self, num_workers, staleness, *, all_stay=True):
        super().__init__(num_workers)
        self.staleness = staleness
        self.all_stay = all_stay
        self.seen = {}
        self.most_ahead = 0

    def __call__(self, slot, rank, step, value):
        first = initial(slot, self.length)
        clocks = [round(a - b) for a, b in zip(value[1:], first[1:], strict=True)]
        # A replacement repeats the step that its predecessor had pushed to some keys only.
        assert clocks[rank] >= step, "a read lacks a push of its own worker"
        if self.all_stay:
            assert min(clocks) >= step - self.staleness, "a worker is too far ahead"
        before = self.seen.get((slot, rank), [0] * self.num_workers)
        assert all(a >= b for a, b in zip(clocks, before, strict=True)), "a value went backwards"
        self.seen[slot, rank] = clocks
        self.most_ahead = max(self.most_ahead, step - min(clocks))
        return super().__call__(slot, rank, step, value)

    def check_order(self, cluster):
        """As they were applied, no clock was more than the bound and one above the least."""
        for values in cluster.values:
            for totals in values.history.values():
                clocks = [0] * self.num_workers
                for total in totals:
                    (rank,) = [rank for rank, place in enumerate(total[1:]) if place]
                    clocks[rank] += 1
                    assert max(clocks) - min(clocks) <= self.staleness + 1


def training(watched, **options):
    return Training(
        length=watched.length,
        rate=1.0,
        gradient=watched,
        consistency=Consistency.BOUNDED,
        staleness=watched.staleness,
        **{"num_steps": STEPS, **options},
    )


@pytest.mark.slow
@settings(max_examples=40, phases=QUICK)
@given(
    FAULTS,
    st.integers(1, 4),
    st.integers(1, 3),
    troubles([Trouble.CRASH, Trouble.CUT, Trouble.FREEZE], 4),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_nobody_runs_further_ahead_than_the_bound(
    faults, num_workers, staleness, plan, pushpull, seed
):
    watched = Watched(num_workers, staleness)
    cluster = run_job(
        training(watched, pushpull=pushpull),
        num_workers=num_workers,
        policy=DeathPolicy.WAIT,
        faults=faults,
        plan=of_workers(plan, num_workers),
        seed=seed,
        slice_bytes=1 << 20,
    )
    check_ended_well(cluster)
    watched.check_pushes(cluster, STEPS)
    watched.check_order(cluster)


@settings(max_examples=25, phases=QUICK)
@given(FAULTS, st.integers(1, 4), st.booleans(), st.integers(0, 10_000))
def test_a_bound_of_0_has_the_bits_of_sync(faults, num_workers, pushpull, seed):
    bounded = Training(pushpull=pushpull, change_rate_at=2, consistency=Consistency.BOUNDED)
    cluster = run_job(bounded, num_workers=num_workers, faults=faults, seed=seed)
    check_ended_well(cluster)
    check_like_reference(cluster, bounded)


def with_a_slow_worker(watched, **options):
    """The last worker's steps come only when its process is thawed, now and then."""
    slow = worker(watched.num_workers - 1)
    plan = []
    for number in range(20):
        plan.append(Disturbance(1.0 + number, Trouble.FREEZE, slow))
        plan.append(Disturbance(1.9 + number, Trouble.THAW, slow))
    faults = Faults(least_delay_s=0.01, most_delay_s=0.01)
    job = training(watched, num_steps=60)
    options = {"slice_bytes": 1 << 20, **options}
    return run_job(job, num_workers=watched.num_workers, faults=faults, plan=plan, **options)


@pytest.mark.parametrize("staleness", [1, 3])
def test_the_fast_use_the_whole_bound_and_no_more(staleness):
    watched = Watched(3, staleness)
    cluster = with_a_slow_worker(watched)
    check_ended_well(cluster)
    watched.check_order(cluster)
    assert watched.most_ahead == staleness


@settings(max_examples=20, phases=QUICK)
@given(st.floats(0.2, 0.8), st.integers(1, 3), st.integers(0, 10_000))
def test_the_dead_hold_nobody_up_when_the_job_goes_on(at_s, staleness, seed):
    watched = Watched(3, staleness, all_stay=False)
    cluster = run_job(
        training(watched, num_steps=40),
        policy=DeathPolicy.CONTINUE,
        faults=Faults(least_delay_s=0.01, most_delay_s=0.02),
        plan=[Disturbance(at_s, Trouble.CRASH, worker(1))],
        seed=seed,
        slice_bytes=1 << 20,
    )
    assert ended(cluster).exit_code == 0
    for rank in (0, 2):
        assert cluster.user(rank).error is None
        steps = sum(isinstance(call, PushCall) for call, _ in cluster.user(rank).durations_s)
        assert steps == 40
    watched.check_pushes(cluster, 40, whole=False)


def test_a_wait_names_those_who_are_waited_for():
    watched, errors = Watched(3, 1), {}
    plain = training(watched, timeout_s=3.0)

    def script(user, rank):
        if rank == 1:
            yield from idle(user, plain(user, rank))
            return
        try:
            yield from plain(user, rank)
        except WaitTimeout as error:
            errors[rank] = str(error)
            raise

    def idle(user, steps):
        calls = next(steps)
        while not isinstance(calls[0], PushCall):
            results = yield calls
            calls = steps.send(results)
        yield [BarrierCall(user.number(), "nobody else comes here", 1000.0)]

    run_job(script, until_s=30.0, heartbeat_interval_s=1.0, slice_bytes=1 << 20)
    assert sorted(errors) == [0, 2]
    for text in errors.values():
        assert "took longer than 3 s" in text
        assert "waits in round 0: W[1] missing" in text
