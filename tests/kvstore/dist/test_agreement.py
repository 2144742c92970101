from types import SimpleNamespace

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


def test_what_everyone_says():
    def work(rank, agreement):
        return [agreement.gather(name, f"{name} of {rank}, naïve") for name in ("x", "y", "x")]

    said = [{rank: f"{name} of {rank}, naïve" for rank in range(3)} for name in ("x", "y", "x")]
    assert agree(3, work) == [said] * 3


def as_one_of_three(agreement, others):
    """Let a lone worker see sums as if it were rank 0 of three, and one of them lost."""

    def scaled(name, numbers):
        return (numbers + others(len(numbers))) * 1.5

    agreement._num_workers, agreement.sum = 3, scaled


def test_those_who_are_gone_say_nothing_and_garble_nothing():
    def rank_2(size):
        numbers = torch.zeros(size, dtype=torch.float64)
        numbers[2] = 1.0
        numbers[3 + 2 * 256] = ord("b")
        return numbers

    def work(rank, agreement):
        as_one_of_three(agreement, rank_2)
        return agreement.gather("x", "a" * 300)

    assert agree(1, work) == [{0: "a" * 256, 2: "b"}]


def test_an_outcome_is_told_whole_although_a_worker_is_lost():
    def rank_0(size):
        numbers = torch.zeros(size, dtype=torch.float64)
        text = b"DataError:truncated"
        numbers[0] = 1.0
        numbers[3 : 3 + len(text)] = torch.tensor(list(text))
        return numbers

    def work(rank, agreement):
        as_one_of_three(agreement, rank_0)
        agreement._client = SimpleNamespace(rank=1)
        with pytest.raises(DataError, match="on rank 0: truncated"):
            agreement.share_outcome(None)

    agree(1, work)
