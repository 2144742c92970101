"""The plane over shared memory, and the choice of planes by name."""

import pytest
import torch
from tests.collective.ranks import LIMIT_S, on_ranks
from torch.distributed import HashStore

from bireme.collective import bank_plane
from bireme.collective.bank_plane import BankPlane, best_for_cpu, make_plane
from bireme.collective.planes import TorchPlane
from bireme.errors import CollectiveError
from bireme.types import ReduceOp


@pytest.fixture
def planes():
    store = HashStore()
    planes = on_ranks(
        3,
        lambda rank: make_plane("bireme", store, rank, 3, found_s=LIMIT_S, exchange_s=LIMIT_S),
    )
    yield planes
    on_ranks(3, lambda rank: planes[rank].close())


def test_exchanges(planes):
    assert all(isinstance(plane, BankPlane) for plane in planes)
    assert [plane.name for plane in planes] == ["BIREME"] * 3

    def run(rank):
        plane = planes[rank]
        small = torch.full((4,), rank + 1, dtype=torch.int16)
        plane.all_reduce(small, ReduceOp.PRODUCT)
        whole = torch.empty(3, dtype=torch.complex64)
        plane.all_gather(torch.full((rank,), rank, dtype=torch.complex64), whole, [0, 1, 2])
        got = torch.empty(3)
        plane.all_to_all(torch.arange(3.0) + 10 * rank, [1, 1, 1], got, [1, 1, 1])
        flag = torch.tensor([rank == 1])
        plane.broadcast(flag, 1)
        return small, whole, got, flag

    for rank, (small, whole, got, flag) in enumerate(on_ranks(3, run)):
        assert small.tolist() == [6] * 4
        assert whole.tolist() == [1, 2, 2]
        assert got.tolist() == [rank, 10 + rank, 20 + rank]
        assert flag.item() is True


def test_many_tensors_meet_one_of_their_length(planes):
    def run(rank):
        plane = planes[rank]
        assert plane.reduces_many
        if rank == 1:
            flat = torch.full((30_000,), 2.0)
            plane.all_reduce(flat, ReduceOp.SUM)
            return flat
        sources = [torch.full((length,), 1.0) for length in (20_000, 0, 9_999, 1)]
        targets = [torch.empty_like(source) for source in sources]
        plane.all_reduce_many(sources, targets, ReduceOp.SUM, (3.0, 0.5))
        assert all((source == 1.0).all() for source in sources)
        return torch.cat(targets)

    found = on_ranks(3, run)
    assert [each.unique().tolist() for each in found] == [[4.0], [8.0], [4.0]]


def test_giving_up_ends_what_the_others_do(planes):
    def run(rank):
        if rank == 2:
            planes[2].give_up("no more")
            return None
        with pytest.raises(CollectiveError) as raised:
            planes[rank].all_reduce(torch.ones(1 << 20), ReduceOp.SUM)
        return raised.value

    assert all(on_ranks(3, run)[:2])


def test_other_backends_are_torchs():
    plane = make_plane("gloo", HashStore(), 0, 1, found_s=LIMIT_S, exchange_s=LIMIT_S)
    assert isinstance(plane, TorchPlane)
    plane.close()


def test_gloo_is_taken_where_there_are_no_futexes(monkeypatch):
    assert best_for_cpu() in ("bireme", "gloo")
    monkeypatch.setattr(bank_plane, "futex_number", lambda: None)
    assert best_for_cpu() == "gloo"
