"""Sums over workers around another reducer."""

import torch
from tests.collective.ranks import on_ranks, started

from bireme.collective import SingleProcess
from bireme.kvstore.reduce import HostReducer, Sum
from bireme.kvstore.reduce.exchanges import PlainExchange
from bireme.kvstore.reduce.workers import WorkersReducer, gather_rows


def test_one_worker_is_the_inner_reducer():
    reducer = WorkersReducer(HostReducer(), PlainExchange(SingleProcess(), "x"))
    outs = [torch.empty(2), torch.empty(2)]
    reducer.check("a", [torch.ones(2)])
    reducer.run([Sum("a", [torch.ones(2), torch.ones(2)], outs)])
    assert [out.tolist() for out in outs] == [[2.0, 2.0]] * 2
    reducer.forget()


def test_workers_add_jobs_in_any_order():
    with started(2) as engines:

        def run(rank):
            reducer = WorkersReducer(HostReducer(), PlainExchange(engines[rank], "x"))
            jobs = {
                key: Sum(key, [torch.full((2,), size + rank)] * 2, [torch.empty(2).expand(2)])
                for key, size in (("a", 1.0), ("b", 5.0))
            }
            reducer.run([jobs[key] for key in ("ab" if rank else "ba")])
            return [jobs[key].outs[0].tolist() for key in "ab"]

        assert on_ranks(2, run) == [[[6.0, 6.0], [22.0, 22.0]]] * 2


def test_rows_of_all_workers_or_of_one():
    with started(2) as engines:

        def run(rank):
            rows = torch.sparse_coo_tensor(
                [[rank, 2]], torch.full((2, 3), rank + 1.0), (4, 3), check_invariants=True
            ).coalesce()
            total = gather_rows(engines[rank], "r", rows)
            first = gather_rows(engines[rank], "r", rows, root=0)
            return total.to_dense()[:, 0].tolist(), first.to_dense()[:, 0].tolist()

        assert on_ranks(2, run) == [([1.0, 2.0, 3.0, 0.0], [1.0, 0.0, 1.0, 0.0])] * 2
