"""The engine that fits the number of ranks."""

from bireme.collective import SingleProcess, Topology, start


def test_one_rank_needs_nobody_else():
    engine = start(Topology.alone())
    assert isinstance(engine, SingleProcess)
    assert engine.topology.size == 1
    engine.close()
