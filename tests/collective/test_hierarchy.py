"""Several machines, which are threads of this process that are told so; Gloo over the loopback."""

import threading

import pytest
import torch
import torch.distributed as dist
from tests.collective.bank.crew import values
from tests.collective.bank.test_reducing import folded
from tests.collective.groups import checked, run_ranks
from tests.collective.test_process_group import options

from bireme.collective import hierarchy
from bireme.collective.bank.elements import Reduction
from bireme.errors import RankLost, StateError, UnsupportedError

LAYOUTS = ["ab", "aabb", "abbab", "abc"]
"""One letter for each rank: its machine."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(hierarchy, "PIECE_BYTES", 1 << 13)
    monkeypatch.setattr(hierarchy, "SMALL_BYTES", 1 << 10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_collective(layout):
    size = len(layout)

    def work(group):
        rank = group.rank()
        found = {}
        for length in (0, 3, 1000, 9001):
            tensor = values(rank, length, torch.float64)
            group.allreduce([tensor]).wait()
            found["all_reduce", length] = tensor
            tensor = values(rank, length, torch.float64)
            group.broadcast([tensor], options(rootRank=size - 1))
            found["broadcast", length] = tensor
            tensor = values(rank, length, torch.float64)
            group.reduce([tensor], options(rootRank=1, reduceOp=dist.ReduceOp.MAX))
            found["reduce", length] = tensor
            inputs = [values(10 * rank + to, length, torch.float64) for to in range(size)]
            output = torch.empty(length, dtype=torch.float64)
            group.reduce_scatter([output], [inputs], options(reduceOp=dist.ReduceOp.AVG))
            found["reduce_scatter", length] = output
            outputs = [torch.empty(length + other) for other in range(size)]
            group.allgather([outputs], [values(rank, length + rank, torch.float32)], options())
            found["all_gather", length] = outputs
            outputs = [torch.empty(length, dtype=torch.float64) for _ in range(size)]
            group.alltoall(outputs, inputs, options())
            found["all_to_all", length] = outputs
        group.barrier(options())
        return found

    results = checked(run_ranks(size, work, machines=layout))
    for length in (0, 3, 1000, 9001):
        every = [values(rank, length, torch.float64) for rank in range(size)]
        for rank, found in enumerate(results):
            assert torch.equal(found["all_reduce", length], folded(every, Reduction.SUM))
            assert torch.equal(found["broadcast", length], every[-1])
            want = folded(every, Reduction.MAX) if rank == 1 else every[rank]
            assert torch.equal(found["reduce", length], want)
            parts = [values(10 * other + rank, length, torch.float64) for other in range(size)]
            want = folded(parts, Reduction.AVG)
            assert torch.equal(found["reduce_scatter", length], want)
            for other, got in enumerate(found["all_gather", length]):
                assert torch.equal(got, values(other, length + other, torch.float32))
            for other, got in enumerate(found["all_to_all", length]):
                assert torch.equal(got, parts[other])


def test_rooted_collectives_and_messages():
    def work(group):
        rank = group.rank()
        rooted = [[torch.empty(2) for _ in range(4)]] if rank == 2 else []
        group.gather(rooted, [torch.full((2,), 1.0 * rank)], options(rootRank=2))
        back = torch.empty(2)
        group.scatter([back], rooted, options(rootRank=2))
        if rank == 0:
            group.send([torch.tensor([5.0])], 3, 7).wait()
        got = torch.zeros(1)
        if rank == 3:
            group.recv([got], 0, 7).wait()
        return back.tolist(), got.item()

    assert checked(run_ranks(4, work, machines="abab")) == [
        ([1.0 * rank] * 2, 5.0 * (rank == 3)) for rank in range(4)
    ]


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.int16, torch.uint32, torch.uint64, torch.bool,
     torch.complex64, torch.int8],
)  # fmt: skip
def test_every_type_is_added(dtype):
    def work(group):
        tensor = values(group.rank(), 5000, dtype)
        group.allreduce([tensor]).wait()
        return tensor

    want = folded([values(rank, 5000, dtype) for rank in range(3)], Reduction.SUM)
    for got in checked(run_ranks(3, work, machines="aab")):
        assert torch.equal(got, want)


def test_what_gloo_cannot_compute_is_refused_on_every_rank():
    def work(group):
        with pytest.raises(UnsupportedError, match="between machines"):
            group.allreduce(
                [torch.ones(3, dtype=torch.complex64)], options(reduceOp=dist.ReduceOp.PRODUCT)
            )
        tensor = torch.ones(2)
        group.allreduce([tensor]).wait()
        return tensor.tolist()

    assert checked(run_ranks(3, work, machines="aab")) == [[3.0, 3.0]] * 3


def test_a_rank_lost_on_one_machine_is_named_on_the_others():
    gone = threading.Event()

    def work(group):
        if group.rank() == 1:
            # Rank 1 leaves its machine's bank, as the kernel would tell of one that was killed.
            group._exchange._bank.steps.leave()
            gone.set()
            return "left"
        assert gone.wait(20)
        with pytest.raises(RankLost, match="rank 1 left the group"):
            group.allreduce([torch.ones(5000)]).wait()
        with pytest.raises((StateError, RankLost)):
            group.barrier(options())
        return "told"

    assert checked(run_ranks(4, work, machines="aabb")) == ["told", "left", "told", "told"]
