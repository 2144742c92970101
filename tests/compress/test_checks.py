import math

import pytest
import torch

from bireme.compress.base import Payload
from bireme.compress.checks import (
    as_float32,
    check_grad,
    check_payload,
    check_state,
    check_threshold,
    take_out,
)
from bireme.errors import ConfigError, UnsupportedError

FLOATS = (torch.float32, torch.float64)


def payload(num_words: int = 4, shape: tuple[int, ...] = (2, 2)) -> Payload:
    return Payload(torch.zeros(num_words, dtype=torch.float16), torch.Size(shape), torch.float32)


def test_grad_messages_name_the_value_and_the_remedy():
    with pytest.raises(UnsupportedError, match=r"2bit takes torch.float32.*torch.int8; cast it"):
        check_grad(torch.zeros(2, dtype=torch.int8), "2bit", (torch.float32,), "cast it")
    with pytest.raises(UnsupportedError, match=r"torch.sparse_coo; call to_dense\(\)"):
        check_grad(torch.eye(2).to_sparse(), "2bit", FLOATS, "")
    with pytest.raises(UnsupportedError, match="cpu and cuda and this gradient is on meta"):
        check_grad(torch.zeros(2, device="meta"), "2bit", FLOATS, "")


def test_good_grad_and_state_pass():
    grad = torch.zeros(2, 3)
    check_grad(grad, "2bit", FLOATS, "")
    state = torch.zeros(2, 3)
    assert check_state(grad, state, "2bit") is state
    empty = torch.zeros(0)
    assert check_state(empty, torch.zeros(0), "2bit").numel() == 0


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, r"got None; make it once with init\(grad\)"),
        (torch.zeros(3), r"shape is \(2, 3\) and its state's is \(3,\)"),
        (torch.zeros(2, 3, dtype=torch.float64), "dtype is torch.float32 and its state's is torch"),
        (torch.zeros(2, 3, device="meta"), "device is cpu and its state's is meta"),
        (torch.zeros(3, 2).t(), "not contiguous"),
    ],
    ids=["none", "shape", "dtype", "device", "strides"],
)
def test_state_messages_name_both_sides(state, message):
    with pytest.raises(ConfigError, match=message):
        check_state(torch.zeros(2, 3), state, "2bit")


def test_payload_of_another_code_or_length_is_refused():
    check_payload(payload(), "fp16", torch.float16, 4, FLOATS)
    with pytest.raises(ConfigError, match=r"holds torch.float16.*not a 2bit payload"):
        check_payload(payload(), "2bit", torch.uint8, 4, FLOATS)
    with pytest.raises(ConfigError, match=r"shape \(2, 2\) is 5 contiguous.*shape \(4,\)"):
        check_payload(payload(), "fp16", torch.float16, 5, FLOATS)


def test_strided_payload_is_refused():
    strided = Payload(torch.zeros(8, dtype=torch.float16)[::2], torch.Size([4]), torch.float32)
    with pytest.raises(ConfigError, match="strides"):
        check_payload(strided, "fp16", torch.float16, 4, FLOATS)


def test_out_is_made_or_taken_or_refused():
    made = take_out(payload(), None, False, FLOATS)
    assert (made.shape, made.dtype) == ((2, 2), torch.float32)
    wide = torch.zeros(2, 2, dtype=torch.float64)
    assert take_out(payload(), wide, True, FLOATS).data_ptr() == wide.data_ptr()
    with pytest.raises(ConfigError, match="accumulate=True adds to out, and out is None"):
        take_out(payload(), None, True, FLOATS)
    with pytest.raises(ConfigError, match=r"torch.float32 or torch.float64 of shape \(2, 2\)"):
        take_out(payload(), torch.zeros(4), False, FLOATS)
    with pytest.raises(ConfigError, match=r"payload.to\(out.device\)"):
        take_out(payload(), torch.zeros(2, 2, device="meta"), False, FLOATS)


def test_out_that_asks_for_gradients_can_be_written():
    out = torch.zeros(2, 2, requires_grad=True)
    take_out(payload(), out, False, FLOATS).fill_(1.0)
    assert out.detach().sum() == 4


@pytest.mark.parametrize("good", [0.5, 1, -2.5, 0, 1e-30])
def test_thresholds_become_floats(good):
    assert check_threshold(good, "1bit") == good
    assert isinstance(check_threshold(good, "1bit"), float)


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, 1e39, -1e39, 10**400, "0.5", None, True, [0.5], 1j]
)
def test_what_is_no_threshold_is_refused(bad):
    with pytest.raises(ConfigError, match="1bit threshold"):
        check_threshold(bad, "1bit")


@pytest.mark.parametrize("value", [0.1, 0.5, -1e-46, 1e-45, 3.4e38, 7.0, 1e39])
def test_as_float32_rounds_as_torch_does(value):
    assert as_float32(value) == float(torch.tensor(value, dtype=torch.float32))
