import math

import pytest
import torch

from bireme.compress import ErrorFeedback, Half
from bireme.errors import ConfigError, UnsupportedError

HALVES = [torch.float16, torch.bfloat16]
halves = pytest.mark.parametrize("dtype", HALVES, ids=["fp16", "bf16"])


def normal(numel, dtype=torch.float32):
    return torch.randn(numel, generator=torch.Generator().manual_seed(3), dtype=dtype)


@halves
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_it_is_torchs_cast(dtype, wide):
    grad = normal(1000, wide)
    payload, state = Half(dtype).compress(grad, None)
    assert state is None
    assert torch.equal(payload.data, grad.to(dtype))
    result = Half(dtype).decompress(payload)
    assert result.dtype is wide
    assert torch.equal(result, grad.to(dtype).to(wide))


@halves
def test_its_own_dtype_travels_unchanged(dtype):
    grad = normal(10).to(dtype)
    payload, _ = Half(dtype).compress(grad, None)
    result = Half(dtype).decompress(payload)
    assert result.dtype is dtype
    assert torch.equal(result, grad)
    assert payload.data.data_ptr() != grad.data_ptr()  # the next backward pass reuses grad


def test_the_other_half_is_refused():
    with pytest.raises(UnsupportedError, match=r"fp16 takes .*torch.bfloat16"):
        Half(torch.float16).compress(torch.zeros(3, dtype=torch.bfloat16), None)


@halves
@pytest.mark.parametrize("grad_dtype", [torch.float32, torch.float64, "own"])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.float64])
def test_results_add_up_in_a_wide_out(dtype, grad_dtype, out_dtype):
    grad = torch.full((40_000,), 1 / 3, dtype=dtype if grad_dtype == "own" else grad_dtype)
    payload, _ = Half(dtype).compress(grad, None)
    out = torch.ones(40_000, dtype=out_dtype)
    Half(dtype).decompress(payload, out, accumulate=True)
    assert torch.equal(out, 1 + grad.to(dtype).to(out_dtype))


@halves
def test_a_half_out_is_refused_for_wide_gradients(dtype):
    payload, _ = Half(dtype).compress(torch.zeros(3), None)
    with pytest.raises(ConfigError, match=r"torch.float32 or torch.float64"):
        Half(dtype).decompress(payload, torch.zeros(3, dtype=dtype))


def test_too_large_for_fp16_is_infinite_and_too_small_is_zero():
    payload, _ = Half(torch.float16).compress(torch.tensor([65504.0, 65520.0, -1e6, 2e-8]), None)
    assert payload.data.tolist() == [65504.0, math.inf, -math.inf, 0.0]
    payload, _ = Half(torch.bfloat16).compress(torch.tensor([1e6, 2e-8]), None)
    assert payload.data.isfinite().all()
    assert (payload.data != 0).all()


def test_with_memory_what_is_too_large_arrives_in_pieces():
    compressor = ErrorFeedback(Half(torch.float16))
    grad = torch.tensor([150_000.0, -70_000.0])
    state, total = compressor.init(grad), torch.zeros(2)
    payload, state = compressor.compress(grad, state)
    assert payload.data.tolist() == [65504.0, -65504.0]
    for _ in range(3):
        compressor.decompress(payload, total, accumulate=True)
        payload, state = compressor.compress(torch.zeros(2), state)
    assert torch.equal(total, grad)


@halves
def test_with_memory_what_is_not_finite_travels_and_leaves_no_trace(dtype):
    compressor = ErrorFeedback(Half(dtype))
    residual = torch.tensor([1e-6, 2e-6, 3e-6])
    grad = torch.tensor([math.nan, math.inf, -math.inf])
    payload, state = compressor.compress(grad, residual.clone())
    assert payload.data[0].isnan()
    assert payload.data[1:].tolist() == [math.inf, -math.inf]
    assert torch.equal(state, residual)


@halves
def test_small_gradients_survive_with_memory_and_vanish_without(dtype):
    """A weight of 1 that gets 1e-4 a step, averaged with 1: the sum shows only with memory."""
    grad = torch.full((5,), 1 + 1e-4)
    compressor, state = ErrorFeedback(Half(dtype)), torch.zeros(5)
    with_memory, without = torch.zeros(5), torch.zeros(5)
    for _ in range(200):
        payload, state = compressor.compress(grad, state)
        compressor.decompress(payload, with_memory, accumulate=True)
        Half(dtype).decompress(Half(dtype).compress(grad, None)[0], without, accumulate=True)
    assert torch.equal(without, torch.full((5,), 200.0))
    torch.testing.assert_close(with_memory, torch.full((5,), 200.02), rtol=0, atol=8e-3)


def test_pieces_change_nothing():
    grad = normal(100_003)
    residual = grad / 1000
    total = grad + residual
    payload = Half().encode(grad, residual)
    assert torch.equal(payload.data, total.half())
    assert torch.equal(residual, total - total.half())


def test_state_is_refused():
    with pytest.raises(ConfigError, match=r"keeps no state.*ErrorFeedback\(Half"):
        Half().compress(torch.zeros(3), torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, "fp16", None])
def test_only_the_two_halves(dtype):
    with pytest.raises(ConfigError, match=r"torch.float16 or torch.bfloat16"):
        Half(dtype)
