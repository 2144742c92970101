import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import DataError, JobError
from bireme.kvstore.dist.agreement import Agreement


def agree(num_workers, work):
    def inside(session):
        client = session._client
        return work(client.rank, Agreement(client, 100, session._start.config))

    return run_threads(num_workers, 2, inside)


def test_sums_of_any_type():
    def work(rank, agreement):
        return [
            agreement.sum("a", torch.full((3,), rank + 1, dtype=dtype)).tolist()
            for dtype in (torch.float64, torch.int32, torch.float64)
        ]

    assert agree(3, work) == [[[6] * 3] * 3] * 3


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DataError("ünreadable" * 200), DataError),
        (FileNotFoundError("gone"), FileNotFoundError),
        (JobError("x"), JobError),
    ],
)
def test_every_worker_raises_what_rank_0_does(error, kind):
    def work(rank, agreement):
        with pytest.raises(kind) as raised:
            agreement.share_outcome(error if rank == 0 else None)
        agreement.share_outcome(None)
        return str(raised.value)

    first, second = agree(2, work)
    assert first == str(error)
    assert second.startswith("on rank 0: ")
    assert str(error)[:20] in second


def test_only_rank_0_counts():
    agree(2, lambda rank, agreement: agreement.share_outcome(DataError("x") if rank else None))
