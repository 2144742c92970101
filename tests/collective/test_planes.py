"""Data planes over torch's backends, beside its default group."""

import pytest
import torch
from tests.collective.ranks import LIMIT_S, on_ranks
from torch import distributed
from torch.distributed import HashStore

from bireme.collective.planes import TorchPlane
from bireme.errors import CollectiveError, ConfigError
from bireme.types import ReduceOp


@pytest.fixture
def planes():
    store = HashStore()
    planes = on_ranks(
        3,
        lambda rank: TorchPlane("gloo", store, rank, 3, found_s=LIMIT_S, exchange_s=LIMIT_S),
    )
    yield planes
    on_ranks(3, lambda rank: planes[rank].close())


def test_the_default_group_is_left_alone(planes):
    assert not distributed.is_initialized()
    assert [plane.name for plane in planes] == ["GLOO"] * 3


def test_exchanges(planes):
    def run(rank):
        plane = planes[rank]
        small = torch.full((4,), rank + 1, dtype=torch.int16)
        plane.all_reduce(small, ReduceOp.PRODUCT)
        source = torch.full((rank,), rank, dtype=torch.complex64)
        whole = torch.empty(3, dtype=torch.complex64)
        plane.all_gather(source, whole, [0, 1, 2])
        even = torch.empty(3, dtype=torch.int16)
        plane.all_gather(torch.tensor([rank], dtype=torch.int16), even, [1, 1, 1])
        plane.all_gather(torch.empty(0), torch.empty(0), [0, 0, 0])
        got = torch.empty(3)
        plane.all_to_all(torch.arange(3.0) + 10 * rank, [1, 1, 1], got, [1, 1, 1])
        flag = torch.tensor([rank == 1])
        plane.broadcast(flag, 1)
        return small, whole, even, got, flag

    for rank, (small, whole, even, got, flag) in enumerate(on_ranks(3, run)):
        assert small.tolist() == [6] * 4
        assert whole.tolist() == [1, 2, 2]
        assert even.tolist() == [0, 1, 2]
        assert got.tolist() == [rank, 10 + rank, 20 + rank]
        assert flag.item() is True


def test_giving_up_ends_what_the_others_do(planes):
    def run(rank):
        if rank == 2:
            planes[2].give_up("no more")
            return None
        with pytest.raises(RuntimeError, match=r"closed|reset") as raised:
            planes[rank].all_reduce(torch.ones(1 << 20), ReduceOp.SUM)
        planes[rank].give_up("neither")
        return raised.value

    assert all(on_ranks(3, run)[:2])
    with pytest.raises(CollectiveError, match="has left"):
        planes[0].all_reduce(torch.ones(1), ReduceOp.SUM)


def test_a_backend_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="no backend 'carrier-pigeon'"):
        TorchPlane("carrier-pigeon", HashStore(), 0, 1, found_s=1.0, exchange_s=1.0)
