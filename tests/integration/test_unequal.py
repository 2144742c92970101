"""Workers whose portions change from step to step train as one process on the whole batches."""

import json

import pytest
import torch
from tests.integration.forking import Job, script
from tests.integration.jobs import run_threads
from tests.integration.programs.unequal import (
    BATCH,
    EPOCHS,
    NUM_SAMPLES,
    train_alone,
    train_together,
)

PROGRAM = script("programs/unequal.py")
STEPS = -(-NUM_SAMPLES // BATCH)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_exact(runs):
    for params in runs:
        for param, first, exact in zip(params, runs[0], train_alone(), strict=True):
            assert torch.equal(param, first)
            torch.testing.assert_close(param, exact, rtol=1e-6, atol=1e-9)


def assert_covered(steps):
    """Every epoch uses every sample once; ``steps`` holds the samples of all workers' steps."""
    for epoch in range(EPOCHS):
        part = steps[epoch * STEPS : (epoch + 1) * STEPS]
        assert sorted(index for step in part for index in step) == list(range(NUM_SAMPLES))


def together(found):
    """Return the samples that each step used, of all workers."""
    steps = zip(*(used for used, _ in found), strict=True)
    return [[index for portion in step for index in portion] for step in steps]


@pytest.mark.parametrize("kind", ["dist_sync", "dist_sync_device"])
@pytest.mark.parametrize("on_store", [True, False])
@pytest.mark.parametrize(("num_workers", "overlap"), [(2, False), (4, False), (3, True)])
def test_threads(num_workers, overlap, on_store, kind):
    def work(session):
        with session.store(kind) as store:
            return train_together(store, on_store, overlap=overlap)

    found = run_threads(num_workers, 2, work, slice_bytes=64)
    sizes = [tuple(map(len, step)) for step in zip(*(used for used, _ in found), strict=True)]
    # Equal at first, then after each speed, and a smaller last batch.
    assert len(set(sizes)) >= 4
    assert sizes[0] == (BATCH // num_workers,) * num_workers
    assert sizes[9][0] < sizes[0][0] < sizes[-2][0]
    assert_covered(together(found))
    assert_exact([params for _, params in found])


def test_given_portions():
    def work(session):
        with session.store("dist_sync") as store:
            return train_together(store, work_load_list=[3, 1])

    found = run_threads(2, 1, work)
    assert [len(step) for step in found[0][0]][:3] == [18, 18, 18]
    assert_covered(together(found))
    assert_exact([params for _, params in found])


def read(folder, num_workers):
    """Return the samples that each step used, of all workers that came so far."""
    steps = []
    while found := [
        path
        for rank in range(num_workers)
        if (path := folder / f"{rank}-{len(steps)}.json").exists()
    ]:
        steps.append([index for path in found for index in json.loads(path.read_text())])
    return steps


def params_of(folder, ranks):
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in ranks]


def run(folder, *options, num_workers=3, **env):
    with Job(folder / "job", ["-n", num_workers, *options], PROGRAM, OUT=folder, **env) as job:
        assert job.end(90) == 0, job.err


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("kind", ["dist_sync", "dist_sync_device"])
def test_processes(tmp_path, kind):
    run(tmp_path, "-s", 2, num_workers=2, KIND=kind)
    steps = read(tmp_path, 2)
    assert len(steps) == EPOCHS * STEPS
    assert_covered(steps)
    assert_exact(params_of(tmp_path, range(2)))


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize(("when", "more"), [(3, {}), (9, {"OVERLAP": 1})])
def test_those_who_are_left_use_every_sample(tmp_path, when, more):
    run(tmp_path, "--on-worker-death", "continue", ACT=f"1:{when}", **more)
    used = [index for step in read(tmp_path, 3) for index in step]
    assert sorted(used) == sorted([*range(NUM_SAMPLES)] * EPOCHS)
    first, second = params_of(tmp_path, (0, 2))
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("when", [0, 5, 14])
def test_a_replacement_cuts_batches_as_the_others_do(tmp_path, when):
    run(tmp_path, "--on-worker-death", "wait", ACT=f"1:{when}")
    assert (tmp_path / "killed").exists()
    assert_covered(read(tmp_path, 3))
    # Nothing was lost, so the result is that of one process.
    assert_exact(params_of(tmp_path, range(3)))
