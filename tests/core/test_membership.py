"""The membership by itself; what messages make of it is tested with the scheduler."""

import pytest

from bireme.core.actions import EndJob, Send
from bireme.core.membership import LINK_GRACE_S, Membership, Phase
from bireme.core.roster import Roster
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import Role, worker
from bireme.wire.messages import Abort, JobConfig, Join, Start, ViewChange


@pytest.fixture
def job():
    config = JobConfig(2, 1, 2, death_policy=DeathPolicy.CONTINUE)
    job = Membership(config, Roster(config, host="leda", software=""), "leda")
    job.start(10.0)
    for link, (role, rank) in enumerate([(Role.SERVER, 0), (Role.WORKER, 0), (Role.WORKER, 1)]):
        join = Join(role, rank, f"host-{rank}", link, (), 2, 1, "", 0)
        assert job.roster.admit(link, join, 10.0, running=False) is not None
    return job


def messages(job, kind):
    return [
        each.message
        for each in job.actions
        if isinstance(each, Send) and isinstance(each.message, kind)
    ]


def test_forming_tells_everyone(job):
    assert job.next_deadline_s() == 10.0 + job.config.heartbeat_interval_s
    job.form(11.0)
    assert (job.phase, job.view) == (Phase.RUNNING, 1)
    assert len(messages(job, Start)) == 3


def test_a_broken_link_has_a_moment_to_come_back(job):
    job.form(11.0)
    job.link_lost(2, "reset", 12.0)
    job.link_lost(99, "a stranger", 12.0)
    assert job.next_deadline_s() <= 12.0 + LINK_GRACE_S
    job.tick(12.0 + LINK_GRACE_S / 2)
    assert worker(1) in job.roster.seats
    job.tick(12.0 + LINK_GRACE_S)
    assert job.roster.lost[worker(1)].reason == "reset"
    assert job.view == 2


def test_departures_are_gathered_into_one_view(job):
    job.form(11.0)
    job.done(worker(0), 12.0)
    assert messages(job, ViewChange) == []
    job.tick(12.1)
    (change,) = {each.view: each for each in messages(job, ViewChange)}.values()
    assert change.left == (worker(0),)
    job.done(worker(1), 13.0)
    assert job.phase is Phase.ENDING


def test_the_last_worker_that_dies_ends_the_job(job):
    job.form(11.0)
    for node in (worker(0), worker(1)):
        job.died(node, "killed", 12.0)
    (abort, *_) = messages(job, Abort)
    assert abort.culprit == worker(1)
    assert [each.exit_code for each in job.actions if isinstance(each, EndJob)] == [1]
    assert job.next_deadline_s() is None
