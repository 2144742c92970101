"""Runs simulated jobs and checks, all the while and at the end, what the system promises."""

from random import Random

from bireme.core.actions import Send
from bireme.core.events import Received
from bireme.core.inquiry import INQUIRY_LIMIT_S
from bireme.sim.cluster import Cluster
from bireme.sim.disturbance import disturb
from bireme.sim.network import Faults
from bireme.sim.training import canonical_sum, reference
from bireme.types.nodes import SCHEDULER, Role, server
from bireme.wire.messages import Command, DeathPolicy, Init, JobConfig, Pull, Push, Stale

OF_A_VIEW = (Push, Pull, Init, Command)

ROUGH = Faults(drop=0.05, duplicate=0.1, least_delay_s=0.001, most_delay_s=0.04, reorder=True)


def run_job(
    training,
    *,
    num_workers=3,
    num_servers=2,
    policy=DeathPolicy.ABORT,
    faults=None,
    plan=(),
    seed=0,
    slice_bytes=16,
    until_s=500.0,
    workers_per_host=0,
    cluster_class=Cluster,
    **config,
):
    """Run a job under the watch of all checks that hold at any time; return the cluster."""
    cluster = cluster_class(
        JobConfig(
            num_workers,
            num_servers,
            num_workers,
            death_policy=policy,
            slice_bytes=slice_bytes,
            resend_timeout_s=0.4,
            heartbeat_timeout_s=5.0,
            **config,
        ),
        training,
        seed=seed,
        faults=faults,
        keep_history=True,
        supervised=policy is DeathPolicy.WAIT,
        workers_per_host=workers_per_host,
    )
    for rank in range(num_servers):
        watch_views(cluster, rank)
    disturb(cluster, list(plan))
    cluster.run(until_s)
    check_calls_ended(cluster)
    return cluster


def watch_views(cluster, rank):
    """Check that a server never takes in anything of an older view."""
    core, values = cluster.processes[server(rank)].core, cluster.values[rank]
    handle = core.handle

    def watched(event, now_s):
        old = (
            type(event) is Received
            and isinstance(event.message, OF_A_VIEW)
            and event.message.view < core.view
        )
        before = (values.num_taken, len(values.cells), len(values.commands))
        actions = handle(event, now_s)
        if old:
            assert (values.num_taken, len(values.cells), len(values.commands)) == before
            answers = [each.message for each in actions if isinstance(each, Send)]
            assert not any(isinstance(each, Stale) and each.view < core.view for each in answers)
            assert answers, "a message of an old view got no answer"
        return actions

    core.handle = watched


def check_calls_ended(cluster):
    """Every call of every process that lived has ended within its limit and the inquiry's."""
    for _, process in [*cluster.gone, *cluster.processes.items()]:
        if process.user is None:
            continue
        for call, duration_s in process.user.durations_s:
            assert duration_s <= call.timeout_s + INQUIRY_LIMIT_S + 0.5, call
        if process.exit is not None:
            assert process.user.done, "a script waits although its worker has ended"


def check_ended_well(cluster):
    """The job is over, nothing failed that was not disturbed, and nothing is left behind."""
    codes = cluster.exit_codes()
    texts = {node: process.exit for node, process in cluster.processes.items()}
    for node, code in codes.items():
        if node.role is not Role.WORKER:
            assert code == 0, (node, texts)
    for rank, values in enumerate(cluster.values):
        assert values.num_partials == 0
        assert cluster.processes[server(rank)].num_held == 0


def check_like_reference(cluster, training):
    """The values on the servers are those of the undisturbed run, bit for bit."""
    cells = {slot: cell for values in cluster.values for slot, cell in values.cells.items()}
    assert len(cells) >= training.num_keys
    wanted = reference(
        training, cluster.config.num_workers, {slot: len(c.value) for slot, c in cells.items()}
    )
    for slot, cell in cells.items():
        assert cell.value == wanted[slot], slot


def ended(cluster):
    """Return how the job ended for the scheduler."""
    exit_ = cluster.processes[SCHEDULER].exit
    assert exit_ is not None, "the scheduler never ended"
    return exit_


class Counted:
    """A gradient that tells, in the sum, who contributed: a number, then one place per rank."""

    def __init__(self, num_workers):
        self.num_workers = num_workers
        self.length = 1 + num_workers

    def __call__(self, slot, rank, step, value):
        places = [0.0] * self.num_workers
        places[rank] = 1.0
        return [self.number(slot, rank, step), *places]

    def number(self, slot, rank, step):
        random = Random(f"{slot} {rank} {step}")
        return random.uniform(-1.0, 1.0) * 10.0 ** random.randint(-8, 8)

    def check_rounds(self, cluster):
        """Each round holds each rank at most once, and is the canonical sum of its ranks."""
        for values in cluster.values:
            for slot, totals in values.history.items():
                for step, total in enumerate(totals):
                    assert set(total[1:]) <= {0.0, 1.0}, (slot, step, total)
                    ranks = [rank for rank, place in enumerate(total[1:]) if place]
                    parts = {rank: [self.number(slot, rank, step)] for rank in ranks}
                    wanted = canonical_sum(self.num_workers, parts)
                    assert total[0] == wanted[0], (slot, step, ranks)

    def check_pushes(self, cluster, num_steps, *, whole=True):
        """Asynchronous: each rank's pushes were applied once each, in their order."""
        for values in cluster.values:
            for slot, totals in values.history.items():
                for rank in range(self.num_workers):
                    found = [total[0] for total in totals if total[1 + rank]]
                    wanted = [self.number(slot, rank, step) for step in range(num_steps)]
                    assert found == (wanted if whole else wanted[: len(found)]), (slot, rank)
