"""The engine that fits the number of ranks."""

import pytest
from tests.collective.ranks import on_ranks
from torch.distributed import HashStore

from bireme.collective import SingleProcess, Topology, start
from bireme.collective.engine import Engine
from bireme.errors import ConfigError
from bireme.settings.collective import CollectiveSettings


def test_one_rank_needs_nobody_else():
    engine = start(Topology.alone())
    assert isinstance(engine, SingleProcess)
    assert engine.topology.size == 1
    engine.close()


def test_several_ranks_need_a_store():
    with pytest.raises(ConfigError, match="store="):
        start(Topology.on_one_machine(0, 2))


def test_rank_0s_settings_hold_for_all():
    store = HashStore()

    def begin(rank):
        settings = CollectiveSettings(fusion_bytes=100 + rank)
        return start(Topology.on_one_machine(rank, 2), settings, store=store)

    engines = on_ranks(2, begin)
    assert all(isinstance(engine, Engine) for engine in engines)
    assert [engine._negotiation.member._threshold_bytes for engine in engines] == [100, 100]
    on_ranks(2, lambda rank: engines[rank].close())
