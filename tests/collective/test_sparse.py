from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from tests.collective.groups import checked, run_ranks

from bireme.collective.bank.elements import Reduction
from bireme.collective.sparse import check_sparse
from bireme.errors import MismatchError, UnsupportedError


def embedding_gradient(rank, count, dtype=torch.float32):
    """Entries that are repeated within a rank and between ranks."""
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randint(7, (1, count), generator=generator)
    values = torch.randn(count, 3, generator=generator).to(dtype)
    return torch.sparse_coo_tensor(rows, values, (9, 3), check_invariants=True)


CASES = {
    "repeated rows": lambda rank: embedding_gradient(rank, 10 + rank),
    "one rank has none": lambda rank: embedding_gradient(rank, 5 * rank),
    "nobody has any": lambda rank: embedding_gradient(rank, 0),
    "two sparse dimensions": lambda rank: (torch.eye(4) * (rank + 0.1)).to_sparse(),
    "float64": lambda rank: embedding_gradient(rank, 6, torch.float64),
    "int64": lambda rank: (torch.arange(6) % (rank + 2)).to_sparse(),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machines", ["", "aab"])
def test_the_sum_is_gloos_to_the_bit(name, machines):
    store = dist.HashStore()

    def work(group):
        rank = group.rank()
        gloo = dist.ProcessGroupGloo(store, rank, 3, timedelta(seconds=20))
        ours, theirs = CASES[name](rank), CASES[name](rank)
        found = group.allreduce([ours])
        assert found.get_future().wait()[0] is ours
        gloo.allreduce([theirs]).wait()
        assert ours.is_coalesced()
        assert torch.equal(ours.indices(), theirs.coalesce().indices())
        assert torch.equal(ours.values(), theirs.coalesce().values())
        return ours.to_dense()

    results = checked(run_ranks(3, work, machines=machines))
    assert all(torch.equal(each, results[0]) for each in results)


@pytest.mark.parametrize("other", [torch.ones(3, 2), torch.ones(2, 2).double(), torch.ones(2)])
def test_what_differs_is_told_to_all_and_changes_nothing(other):
    def work(group):
        tensor = (torch.ones(2, 2), other)[group.rank()].to_sparse()
        with pytest.raises(MismatchError, match="different shapes or types"):
            group.allreduce([tensor]).wait()
        assert torch.equal(tensor.to_dense(), (torch.ones(2, 2), other)[group.rank()])
        group.allreduce([dense := torch.ones(1)]).wait()
        return dense.item()

    assert checked(run_ranks(2, work)) == [2.0] * 2


def test_a_dense_tensor_elsewhere_is_told_to_all():
    def work(group):
        tensor = torch.ones(2)
        with pytest.raises(MismatchError):
            group.allreduce([tensor.to_sparse() if group.rank() else tensor]).wait()

    checked(run_ranks(2, work))


def test_what_cannot_be_summed_is_refused():
    with pytest.raises(UnsupportedError, match="over 16"):
        check_sparse(torch.zeros([1] * 17).to_sparse(), Reduction.SUM)
    with pytest.raises(UnsupportedError, match="sparse and dense"):
        check_sparse(torch.zeros(2), Reduction.SUM)
