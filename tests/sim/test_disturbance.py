from bireme.sim.cluster import Cluster
from bireme.sim.disturbance import Disturbance, Trouble, disturb, draw
from bireme.sim.training import Training
from bireme.types.nodes import worker
from bireme.wire.messages import DeathPolicy, JobConfig


def plan(seed):
    return draw(
        seed, num_workers=2, num_servers=1, troubles=list(Trouble)[:1], number=3, until_s=2.0
    )


def test_a_plan_follows_from_its_seed_and_brings_replacements():
    assert plan(1) == plan(1)
    assert plan(1) != plan(2)
    kinds = [each.trouble for each in plan(1)]
    assert kinds.count(Trouble.CRASH) == kinds.count(Trouble.RESTART) == 3
    assert [each.at_s for each in plan(1)] == sorted(each.at_s for each in plan(1))


def test_what_is_planned_happens():
    config = JobConfig(2, 1, 2, death_policy=DeathPolicy.WAIT, slice_bytes=16)
    cluster = Cluster(config, Training(num_steps=2000))
    disturb(
        cluster,
        [
            Disturbance(0.1, Trouble.CRASH, worker(1)),
            Disturbance(0.2, Trouble.RESTART, worker(1)),
            Disturbance(0.3, Trouble.CUT, worker(0)),
            Disturbance(0.3, Trouble.RESTART, worker(0)),
        ],
    )
    cluster.run(60.0)
    assert [node for node, _ in cluster.gone] == [worker(1)]
    assert set(cluster.exit_codes().values()) == {0}
