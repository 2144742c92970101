"""Things that go wrong in a simulated job at given times: deaths, replacements, broken links.

Used by the scenario tests, which draw plans by seed.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from bireme.sim.cluster import Cluster
from bireme.sim.process import Process
from bireme.types.nodes import NodeId, Role, worker

__all__ = ("Disturbance", "Trouble", "disturb", "draw")


class Trouble(StrEnum):
    """What happens to a process."""

    CRASH = "crash"
    """It dies."""
    RESTART = "restart"
    """A dead worker gets a replacement."""
    CUT = "cut"
    """One of its links breaks, with what is under way."""
    CUT_RELAY = "cut relay"
    """A link of the relay beside a worker breaks."""
    END_RELAY = "end relay"
    """The relay beside a worker ends; the worker lives."""
    FREEZE = "freeze"
    """It stops doing anything; its links stay."""
    THAW = "thaw"
    """It goes on."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing that goes wrong."""

    at_s: float
    trouble: Trouble
    node: NodeId
    pick: int = 0
    """Which of several links."""


def disturb(cluster: Cluster, plan: list[Disturbance]) -> None:
    """Have the things of ``plan`` happen to ``cluster`` at their times."""
    for each in plan:
        cluster.clock.at(each.at_s, _happen, cluster, each)


def draw(
    seed: int,
    *,
    num_workers: int,
    num_servers: int,
    troubles: list[Trouble],
    number: int,
    until_s: float,
) -> list[Disturbance]:
    """Return a plan by chance; a crashed worker gets a replacement a little later.

    Args:
        seed: Everything follows from it.
        num_workers: Workers that things happen to.
        num_servers: Servers whose links may break.
        troubles: What may happen; ``CRASH`` brings ``RESTART``, ``FREEZE`` brings ``THAW``.
        number: How many things happen.
        until_s: When the last of them happens, at the latest.
    """
    random = Random(f"plan {seed}")
    plan = []
    for _ in range(number):
        trouble = random.choice(troubles)
        at_s = random.uniform(0.0, until_s)
        node = worker(random.randrange(num_workers))
        if trouble is Trouble.CUT and num_servers and random.random() < 0.3:
            node = NodeId(Role.SERVER, random.randrange(num_servers))
        plan.append(Disturbance(at_s, trouble, node, random.randrange(1000)))
        if trouble is Trouble.CRASH:
            plan.append(Disturbance(at_s + random.uniform(0.02, 1.5), Trouble.RESTART, node))
        elif trouble is Trouble.FREEZE:
            plan.append(Disturbance(at_s + random.uniform(0.02, 0.4), Trouble.THAW, node))
    return sorted(plan, key=lambda each: each.at_s)


def _happen(cluster: Cluster, each: Disturbance) -> None:
    process = cluster.processes[each.node]
    if each.trouble is Trouble.RESTART:
        if not process.alive and process.exit is None:
            cluster.start_worker(each.node.rank)
    elif not process.alive:
        return
    elif each.trouble is Trouble.CRASH:
        process.crash()
    elif each.trouble is Trouble.CUT:
        _cut(cluster, process, each.pick)
    elif each.trouble in (Trouble.CUT_RELAY, Trouble.END_RELAY):
        _trouble_relay(cluster, process.relay, each)
    elif each.trouble is Trouble.FREEZE:
        process.freeze()
    else:
        process.thaw()


def _cut(cluster: Cluster, process: Process, pick: int) -> None:
    links = cluster.network.links_of(process)
    if links:
        cluster.network.cut(links[pick % len(links)])


def _trouble_relay(cluster: Cluster, relay: Process | None, each: Disturbance) -> None:
    if relay is None:
        return
    if each.trouble is Trouble.CUT_RELAY:
        _cut(cluster, relay, each.pick)
    else:
        relay.crash()
