"""The scenarios are able to fail: each planted bug is found within a few seeds."""

import pytest
from msgspec.structs import replace
from tests.scenarios.jobs import (
    ROUGH,
    Counted,
    check_ended_well,
    check_like_reference,
    run_job,
)
from tests.scenarios.test_live_changes import pipelined_job

from bireme.consistency.sync import SyncLedger
from bireme.core import server
from bireme.core.desk import Desk
from bireme.core.groups import Groups
from bireme.core.lanes import Lanes
from bireme.core.shelf import Shelf
from bireme.core.tree import Tree
from bireme.sim.disturbance import Trouble, draw
from bireme.sim.training import Training
from bireme.types.choices import Consistency
from bireme.wire.messages import DeathPolicy


def sync_job(seed):
    training = Training(num_steps=5, change_rate_at=2, timeout_s=20.0)
    plan = draw(seed, num_workers=3, num_servers=2, troubles=[Trouble.CRASH], number=2, until_s=1.0)
    cluster = run_job(
        training, faults=ROUGH, seed=seed, policy=DeathPolicy.WAIT, plan=plan, until_s=60.0
    )
    check_ended_well(cluster)
    check_like_reference(cluster, training)


def changing_job(seed):
    training = Training(num_steps=6, rate=None, pushpull=bool(seed % 2), apart_every=3)
    cluster = run_job(training, faults=ROUGH, seed=seed, until_s=60.0)
    check_ended_well(cluster)
    check_like_reference(cluster, training)


def async_job(seed):
    counted = Counted(3)
    training = Training(
        num_steps=5,
        length=counted.length,
        rate=1.0,
        gradient=counted,
        consistency=Consistency.ASYNC,
        timeout_s=20.0,
    )
    cluster = run_job(training, faults=ROUGH, seed=seed, slice_bytes=1 << 20, until_s=60.0)
    check_ended_well(cluster)
    counted.check_pushes(cluster, 5)


def no_memory_of_the_open_round(patch):
    patch.setattr(SyncLedger, "expected", lambda self, rank: self.version)


def acknowledged_before_complete(patch):
    patch.setattr(SyncLedger, "answered", lambda self, rank: self.version + 1)


def any_one_worker_completes_a_round(patch):
    patch.setattr(SyncLedger, "ready", lambda self, awaited: True)


def order_of_arrival(patch):
    patch.setattr(
        Tree, "climb", lambda self, partials, node: next(iter(partials)) ^ 1 if partials else node
    )


def old_views_accepted(patch):
    patch.setattr(server, "_OF_A_VIEW", frozenset())


def nothing_sent_again(patch):
    patch.setattr(Desk, "_sweep", lambda self: setattr(self, "_sweep_s", None))


def stale_never_sent_again(patch):
    patch.setattr(Desk, "stale", lambda self, request, view: self.drop(request))


def requests_counted_instead_of_senders(patch):
    contribute = Shelf._contribute

    def careless(self, link, node, slot, message, entry, *place):
        entry = replace(entry, lead=slot.ledger.expected(message.rank) - message.round)
        contribute(self, link, node, slot, message, entry, *place)

    patch.setattr(Shelf, "_contribute", careless)


def no_fence_around_commands(patch):
    patch.setattr(Lanes, "command", lambda self, request: self._commands.append(request))


def a_parted_group_forgets_its_open_round(patch):
    part = Groups.part

    def forgetful(self, group):
        part(self, group)
        for slot in group.members:
            slot.ledger.seen = 0
            slot.partials.clear()

    patch.setattr(Groups, "part", forgetful)


def groups_are_never_parted_for_single_pushes(patch):
    patch.setattr(Groups, "part", lambda self, group: None)


GROUP_BUGS = [
    a_parted_group_forgets_its_open_round,
    groups_are_never_parted_for_single_pushes,
]

SYNC_BUGS = [
    no_memory_of_the_open_round,
    acknowledged_before_complete,
    any_one_worker_completes_a_round,
    order_of_arrival,
    old_views_accepted,
    nothing_sent_again,
    requests_counted_instead_of_senders,
    stale_never_sent_again,
]


@pytest.mark.parametrize("seed", range(8))
def test_the_jobs_are_sound_without_a_bug(seed):
    sync_job(seed)
    changing_job(seed)
    async_job(seed)


@pytest.mark.slow
@pytest.mark.parametrize("plant", SYNC_BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_in_sync_training(plant, monkeypatch):
    assert found(plant, monkeypatch, sync_job)


@pytest.mark.slow
@pytest.mark.parametrize("plant", GROUP_BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_where_groups_come_and_go(plant, monkeypatch):
    assert found(plant, monkeypatch, changing_job)


@pytest.mark.slow
def test_a_planted_bug_is_found_in_async_training(monkeypatch):
    assert found(requests_counted_instead_of_senders, monkeypatch, async_job)


@pytest.mark.slow
def test_a_planted_bug_is_found_in_live_changes(monkeypatch):
    assert found(no_fence_around_commands, monkeypatch, pipelined_job)


def found(plant, monkeypatch, job):
    plant(monkeypatch)
    for seed in range(20):
        try:
            job(seed)
        except (AssertionError, IndexError, KeyError):
            return True
    return False
