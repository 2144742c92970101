import pytest
import torch

from bireme import compress
from bireme.kvstore.reduce import CompressedReducer, DeviceReducer, HostReducer, Reducer, Sum

REDUCERS = {
    "host": HostReducer,
    "device": lambda: DeviceReducer(HostReducer()),
    "compressed": lambda: CompressedReducer(HostReducer(), compress.create({"type": "fp16"})),
}


@pytest.fixture(params=REDUCERS)
def reducer(request) -> Reducer:
    return REDUCERS[request.param]()


def test_is_a_reducer(reducer):
    assert isinstance(reducer, Reducer)


@pytest.mark.parametrize("num_outs", [1, 2, 5])
@pytest.mark.parametrize("num_values", [1, 2, 3, 4, 5, 8, 11])
def test_sum_reaches_every_target(reducer, num_values, num_outs):
    # Multiples of 1/8 below 8, so that fp16 is exact too.
    values = [torch.randint(0, 64, (33, 7)) / 8.0 for _ in range(num_values)]
    before = [value.clone() for value in values]
    outs = [torch.full((33, 7), -1.0) for _ in range(num_outs)]
    reducer.check("k", values)
    reducer.run([Sum("k", values, outs)])
    assert all(torch.equal(out, torch.stack(values).sum(0)) for out in outs)
    assert all(torch.equal(*pair) for pair in zip(values, before, strict=True))


def test_many_jobs_of_many_sizes(reducer):
    jobs = [
        Sum(number, [torch.full((size,), float(number))] * 3, [torch.zeros(size)])
        for number, size in enumerate((0, 1, 16, 17, 1000, 16_384, 16_385, 100_003))
    ]
    reducer.run(jobs)
    for number, job in enumerate(jobs):
        assert torch.equal(job.outs[0], torch.full_like(job.outs[0], 3.0 * number))


def test_targets_may_be_the_values(reducer):
    values = [torch.full((50_000,), float(number)) for number in range(1, 4)]
    reducer.run([Sum("k", values, [torch.zeros(50_000), *values])])
    assert all(torch.equal(value, torch.full((50_000,), 6.0)) for value in values)


def test_no_jobs(reducer):
    reducer.run([])
    reducer.forget()
