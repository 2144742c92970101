import math

import pytest
import torch

from bireme.compress import bits_numba, bits_torch

SIZES = [0, 1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 4095, 4096, 4097, 10_001]


def random(numel: int, seed: int) -> torch.Tensor:
    """Normal numbers, with what is not finite, both zeros and the thresholds strewn in."""
    values = torch.randn(numel, generator=torch.Generator().manual_seed(seed))
    special = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, -0.5, 3e38, 1e-42])
    for count, place in enumerate(range(seed, numel, 7)):
        values[place] = special[count % len(special)]
    return values


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0))


@pytest.mark.parametrize("numel", SIZES)
@pytest.mark.parametrize("threshold", [0.5, float(torch.tensor(0.1)), 1.0])
def test_twobit_writes_the_same_bytes_as_numba(numel, threshold):
    results = []
    for bits in (bits_numba, bits_torch):
        residual = torch.randn(numel, generator=torch.Generator().manual_seed(9))
        data = torch.full((4 * -(-numel // 16),), 255, dtype=torch.uint8)
        bits.encode_twobit(random(numel, 1), residual, data, threshold)
        fresh, added = torch.full((numel,), 7.0), random(numel, 2)
        bits.decode_twobit(data, fresh, threshold, False)
        bits.decode_twobit(data, added, threshold, True)
        results.append((data, residual, fresh, added))
    assert all(map(same, *results))


@pytest.mark.parametrize("numel", SIZES)
@pytest.mark.parametrize("threshold", [0.5, 0.0, -0.25])
def test_onebit_writes_the_same_bytes_as_numba(numel, threshold):
    results = []
    for bits in (bits_numba, bits_torch):
        residual = torch.randn(numel, generator=torch.Generator().manual_seed(9))
        data = torch.full((4 * -(-numel // 32),), 255, dtype=torch.uint8)
        num_bad = bits.encode_onebit(random(numel, 1), residual, data, threshold)
        fresh, added = torch.full((numel,), 7.0), random(numel, 2)
        bits.decode_onebit(data, fresh, False)
        bits.decode_onebit(data, added, True)
        results.append((data, residual, fresh, added, torch.tensor(num_bad)))
    assert all(map(same, *results))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_writes_the_same_bytes_as_the_cpu():
    for numel in SIZES:
        on_cpu, on_cuda = (four_passes(numel, device) for device in ("cpu", "cuda"))
        assert all(map(same, on_cpu, on_cuda))


def four_passes(numel: int, device: str) -> list[torch.Tensor]:
    """Run everything on ``device``; return all that was written, on the CPU."""
    residual = torch.randn(numel, generator=torch.Generator().manual_seed(9)).to(device)
    two = torch.zeros(4 * -(-numel // 16), dtype=torch.uint8, device=device)
    one = torch.zeros(4 * -(-numel // 32), dtype=torch.uint8, device=device)
    out = torch.zeros(numel, device=device)
    bits_torch.encode_twobit(random(numel, 1).to(device), residual, two, 0.5)
    bits_torch.encode_onebit(random(numel, 2).to(device), residual, one, 0.5)
    bits_torch.decode_twobit(two, out, 0.5, True)
    bits_torch.decode_onebit(one, out, True)
    return [tensor.cpu() for tensor in (two, one, residual, out)]
