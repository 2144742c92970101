import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bireme.kvstore.reduce import HostReducer, Sum, host

DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
)


@pytest.fixture(params=[False, True], ids=["cached", "streamed"])
def reducer(request, monkeypatch) -> HostReducer:
    monkeypatch.setattr(host, "_STREAM_BYTES", 0 if request.param else 1 << 60)
    monkeypatch.setattr(host, "_CREW_BYTES", 0 if request.param else 1 << 60)
    return HostReducer()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_order_and_rounding(reducer, dtype):
    generator = torch.Generator().manual_seed(5)
    floating = dtype.is_floating_point
    values = [
        torch.randn(20_011, generator=generator).to(dtype)
        if floating
        else torch.randint(-100 if dtype.is_signed else 0, 100, (20_011,), generator=generator).to(
            dtype
        )
        for _ in range(6)
    ]
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    expected = values[0].to(wide)
    for value in values[1:]:
        expected = expected + value
    out = torch.empty(20_011, dtype=dtype)
    reducer.run([Sum("k", values, [out])])
    assert torch.equal(out, expected.to(dtype))


def test_any_alignment(reducer):
    memory = torch.rand(1000)
    target = torch.zeros(1000)
    for start, shift in itertools.product(range(17), repeat=2):
        target.fill_(-1)
        value, out = memory[start : start + 700], target[shift : shift + 700]
        reducer.run([Sum("k", [value, value], [out])])
        assert torch.equal(out, 2 * value)
        assert (target[:shift] == -1).all()
        assert (target[shift + 700 :] == -1).all()


def test_not_contiguous(reducer):
    value, out = torch.rand(30, 20).T, torch.zeros(30, 20).T
    other = torch.zeros(40, 60)[::2, ::2][:, :][:20, :30]
    reducer.run([Sum("k", [value, value.contiguous()], [out, other])])
    assert torch.equal(out, 2 * value)
    assert torch.equal(other, 2 * value)


def test_nan_and_infinity_pass(reducer):
    values = [torch.tensor([float("inf"), float("nan"), -float("inf"), 1.0])] * 2
    out = torch.zeros(4)
    reducer.run([Sum("k", values, [out])])
    assert out.isnan().tolist() == [False, True, False, False]
    assert out[[0, 2, 3]].tolist() == [float("inf"), -float("inf"), 2.0]


def test_dtypes_mix_in_a_call(reducer):
    jobs = [
        Sum(number, [torch.ones(9, dtype=dtype)] * 2, [torch.zeros(9, dtype=dtype)])
        for number, dtype in enumerate(DTYPES)
    ]
    reducer.run(jobs)
    assert all((job.outs[0] == 2).all() for job in jobs)


def test_autograd_learns_of_the_change(reducer):
    out = torch.zeros(3)
    version = out._version
    reducer.run([Sum("k", [torch.ones(3)], [out])])
    assert out._version > version


def test_threads_share_a_reducer(reducer):
    def work(number: int) -> bool:
        out = torch.zeros(100_000)
        for _ in range(5):
            reducer.run([Sum(number, [torch.full((100_000,), float(number))] * 2, [out])])
        return bool((out == 2 * number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
