import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bireme.compress import ErrorFeedback, TwoBit
from bireme.errors import ConfigError, UnsupportedError

MXNET = json.loads(Path(__file__).with_name("mxnet_2bit.json").read_text())["cases"]


@pytest.mark.parametrize("case", MXNET, ids=lambda c: f"{c['numel']} of {c['threshold']}")
def test_bytes_residuals_and_results_are_mxnets(case):
    code = TwoBit(case["threshold"])
    residual = torch.zeros(case["numel"])
    for step in case["steps"]:
        grad = torch.from_numpy(np.frombuffer(bytearray.fromhex(step["grad"]), np.float32))
        payload = code.encode(grad, residual)
        assert payload.data.numpy().tobytes().hex() == step["data"]
        assert residual.numpy().tobytes().hex() == step["residual"]
        assert code.decompress(payload).numpy().tobytes().hex() == step["out"]


def test_the_first_element_takes_the_highest_bits():
    for place, byte in enumerate([0xC0, 0x30, 0x0C, 0x03]):
        grad = torch.zeros(4)
        grad[place] = 1.0
        assert TwoBit(0.5).encode(grad, None).data.tolist() == [byte, 0, 0, 0]
        assert TwoBit(0.5).encode(-grad, None).data.tolist() == [byte & 0xAA, 0, 0, 0]


def test_two_workers_and_twelve_pushes_end_where_mxnets_do():
    compressor = ErrorFeedback(TwoBit(0.5))
    states = [compressor.init(torch.zeros(3)) for _ in range(2)]
    stored, seen = torch.zeros(3), []
    for value in [0.4, 0.1, 0.2, 0.3, -0.7, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]:
        merged = torch.zeros(3)
        for worker in range(2):
            payload, states[worker] = compressor.compress(torch.full((3,), value), states[worker])
            compressor.decompress(payload, merged, accumulate=True)
        stored += 2 * merged
        seen.append(stored[0].item())
    assert seen == [0, 2, 2, 4, 2, 2, 2, 4, 6, 8, 8, 8]


def test_what_is_not_finite_arrives_as_nan_and_leaves_its_residual_alone():
    residual = torch.tensor([0.25, -0.25, 0.125, 0.0, 3e38])
    grad = torch.tensor([math.nan, math.inf, -math.inf, 1.0, 3e38])
    payload = TwoBit(0.5).encode(grad, residual)
    assert payload.data.tolist() == [0b01_01_01_11, 0b01_00_00_00, 0, 0]
    result = TwoBit(0.5).decompress(payload)
    assert result.isnan().tolist() == [True, True, True, False, True]
    assert torch.equal(residual, torch.tensor([0.25, -0.25, 0.125, 0.5, 3e38]))


@pytest.mark.parametrize("numel", [0, 1, 15, 16, 17, 10**10])
def test_payload_bytes_are_whole_floats_of_sixteen(numel):
    assert TwoBit().payload_bytes(numel) == 4 * math.ceil(numel / 16)


@pytest.mark.parametrize(
    "threshold", [0, -0.5, 0.0, -0.0, 1e-50, math.nan, math.inf, 1e39, "1", True]
)
def test_thresholds_that_cannot_work_are_refused(threshold):
    with pytest.raises(ConfigError, match="2bit threshold"):
        TwoBit(threshold)


def test_the_extremes_of_float32_are_thresholds_too():
    smallest, largest = 1e-45, 3.4e38
    grad = torch.tensor([smallest, -largest])
    assert TwoBit(smallest).encode(grad, None).data[0].item() == 0b11_10_0000
    assert TwoBit(largest).encode(grad, None).data[0].item() == 0b00_10_0000


def test_half_gradients_are_refused_with_advice():
    with pytest.raises(UnsupportedError, match=r"takes torch.float32.*float\(\).*half"):
        TwoBit().encode(torch.zeros(3, dtype=torch.float16), None)


def test_a_residual_that_does_not_fit_is_refused_before_any_write():
    residual = torch.full((3,), 0.25)
    with pytest.raises(ConfigError, match="shape"):
        TwoBit().encode(torch.ones(1000), residual)
    assert torch.equal(residual, torch.full((3,), 0.25))


def test_equal_by_value_and_unchangeable():
    assert TwoBit(1) == TwoBit(1.0) != TwoBit(0.5)
    with pytest.raises(AttributeError):
        TwoBit().threshold = 2.0
