"""Workers on parts of a batch reach, to the last bits, what one process reaches on all of it."""

import pytest
import torch
from tests.integration.jobs import launch, run_threads
from tests.integration.programs.training import train_alone, train_together

JOBS = [
    (1, 1, [6]),
    (2, 1, [3, 5]),
    (2, 3, [1, 7]),
    (3, 1, [2, 2, 2]),
    (3, 2, [2, 0, 5]),
    (4, 2, [1, 2, 3, 4]),
    (4, 3, [4, 4, 4, 4]),
]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_exact(runs, size):
    """Every worker of every run has the same bits, which are nearly those of one process."""
    expected = train_alone(size)
    for params in runs:
        for param, first, exact in zip(params, runs[0], expected, strict=True):
            assert torch.equal(param, first)
            torch.testing.assert_close(param, exact, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("on_store", [True, False])
@pytest.mark.parametrize(("num_workers", "num_servers", "shares"), JOBS)
def test_threads_that_come_at_random_times(num_workers, num_servers, shares, on_store):
    def work(session):
        with session.store("dist_sync") as store:
            return train_together(store, shares, on_store)

    # Slices so small that every layer lies on all servers.
    runs = [
        params
        for _ in range(2)
        for params in run_threads(num_workers, num_servers, work, slice_bytes=64)
    ]
    assert_exact(runs, sum(shares))


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("num_servers", "shares", "transport"), [(2, [1, 5], "shm"), (1, [4, 0, 3], "tcp")]
)
def test_processes(tmp_path, num_servers, shares, transport):
    launch(
        "training",
        tmp_path,
        ",".join(map(str, shares)),
        num_workers=len(shares),
        num_servers=num_servers,
        bireme_transport=transport,
    )
    workers = [
        torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(len(shares))
    ]
    on_servers = [params for runs in workers for params in runs[:2]]
    on_workers = [params for runs in workers for params in runs[2:]]
    assert_exact(on_servers, sum(shares))
    assert_exact(on_workers, sum(shares))
