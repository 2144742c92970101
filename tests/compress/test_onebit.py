import math

import pytest
import torch

from bireme.compress import ErrorFeedback, OneBit
from bireme.errors import ConfigError, UnsupportedError


def test_the_first_element_takes_the_highest_bit():
    for place in range(8):
        grad = torch.zeros(8)
        grad[place] = 1.0
        assert OneBit(0.5).encode(grad, None).data.tolist() == [0x80 >> place, 0, 0, 0]


def test_bytes_worked_out_by_hand():
    grad = torch.tensor([1.0, 0.5, 0.6, -2.0, 0.0, 3.0, -0.1, 0.51, 9.0])
    residual = torch.zeros(9)
    payload = OneBit(0.5).encode(grad, residual)
    assert payload.data.tolist() == [0b10100101, 0b10000000, 0, 0]
    expected = [0.0, 1.5, -0.4, -1.0, 1.0, 2.0, 0.9, -0.49, 8.0]
    torch.testing.assert_close(residual, torch.tensor(expected))


def test_the_threshold_decides_and_the_magnitude_stays_one():
    compressor = ErrorFeedback(OneBit(2.0))
    state = compressor.init(torch.zeros(1))
    received = []
    for _ in range(4):
        payload, state = compressor.compress(torch.tensor([1.0]), state)
        received.append(compressor.decompress(payload).item())
    # Sums before each bit: 1, 3, 3, 3; only what is above 2 travels as +1.
    assert received == [-1.0, 1.0, 1.0, 1.0]
    assert state.item() == 2.0


def test_what_is_not_finite_counts_as_zero_and_is_reported():
    residual = torch.tensor([0.75, 0.25, -0.25, 0.0])
    grad = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    with pytest.warns(RuntimeWarning, match="3 of 4 gradient elements were NaN or infinite"):
        payload = OneBit(0.5).encode(grad, residual)
    assert payload.data.tolist() == [0b10010000, 0, 0, 0]
    assert torch.equal(residual, torch.tensor([-0.25, 1.25, 0.75, 0.0]))


@pytest.mark.parametrize("numel", [0, 1, 31, 32, 33, 10**10])
def test_payload_bytes_are_whole_floats_of_thirty_two(numel):
    assert OneBit().payload_bytes(numel) == 4 * math.ceil(numel / 32)


@pytest.mark.parametrize("threshold", [0, -3, 0.5, 1e-45])
def test_any_finite_threshold_will_do(threshold):
    assert OneBit(threshold).threshold == threshold


@pytest.mark.parametrize("threshold", [math.nan, math.inf, 1e39, "0.5", None])
def test_thresholds_that_cannot_work_are_refused(threshold):
    with pytest.raises(ConfigError, match="1bit threshold"):
        OneBit(threshold)


def test_double_gradients_are_refused_with_advice():
    with pytest.raises(UnsupportedError, match=r"takes torch.float32.*float\(\)"):
        OneBit().encode(torch.zeros(3, dtype=torch.float64), None)


def test_a_residual_that_does_not_fit_is_refused_before_any_write():
    residual = torch.full((3,), 0.25)
    with pytest.raises(ConfigError, match="shape"):
        OneBit().encode(torch.ones(1000), residual)
    assert torch.equal(residual, torch.full((3,), 0.25))
