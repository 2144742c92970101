import numpy as np
import pytest
import torch

from bireme.compress import ErrorFeedback, Half, OneBit, TwoBit, create
from bireme.errors import ConfigError


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"type": "2bit"}, ErrorFeedback(TwoBit(0.5))),
        ({"type": "2bit", "threshold": 2}, ErrorFeedback(TwoBit(2.0))),
        ({"type": "2bit", "threshold": " 0.25 "}, ErrorFeedback(TwoBit(0.25))),
        ({"type": "2bit", "threshold": np.float32(0.25)}, ErrorFeedback(TwoBit(0.25))),
        ({"type": "1bit"}, ErrorFeedback(OneBit(0.5))),
        ({"type": "1bit", "threshold": "-1e-3"}, ErrorFeedback(OneBit(-0.001))),
        ({"type": "fp16"}, Half(torch.float16)),
        ({"type": "bf16"}, Half(torch.bfloat16)),
        ({"type": "bf16", "error_feedback": False}, Half(torch.bfloat16)),
        ({"type": "fp16", "error_feedback": True}, ErrorFeedback(Half(torch.float16))),
        ({"type": "fp16", "error_feedback": "True"}, ErrorFeedback(Half(torch.float16))),
        ({"type": "fp16", "error_feedback": "0"}, Half(torch.float16)),
        ({"type": "none"}, None),
        (None, None),
    ],
)
def test_params_name_a_compressor(params, expected):
    assert create(params) == expected


def test_a_compressor_is_returned_as_it_is():
    compressor = ErrorFeedback(TwoBit())
    assert create(compressor) is compressor


def test_params_are_not_changed():
    params = {"type": "2bit", "threshold": "0.5"}
    create(params)
    assert params == {"type": "2bit", "threshold": "0.5"}


@pytest.mark.parametrize(
    "params", [{"type": "4bit"}, {"type": ""}, {"type": None}, {"type": 2}, {"type": ["2bit"]}]
)
def test_unknown_types_are_answered_with_the_valid_ones(params):
    with pytest.raises(ConfigError, match=r"unknown type .*1bit, 2bit, bf16, fp16, none"):
        create(params)


def test_a_missing_type_is_answered_with_the_valid_ones():
    with pytest.raises(ConfigError, match="has no 'type'; valid types: 1bit, 2bit"):
        create({"threshold": 0.5})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"type": "2bit", "treshold": 1},
            r"'treshold'; valid .*: threshold \(default 0.5\)",
        ),
        ({"type": "fp16", "threshold": 1}, r"'threshold'; valid parameters: error_feedback"),
        ({"type": "none", "threshold": 1}, "'threshold'; valid parameters: none"),
        ({"type": "2bit", 3: 1}, "no parameter 3"),
    ],
)
def test_unknown_parameters_are_answered_with_the_valid_ones(params, message):
    with pytest.raises(ConfigError, match=message):
        create(params)


@pytest.mark.parametrize(
    "params",
    [
        {"type": "2bit", "threshold": "half"},
        {"type": "2bit", "threshold": None},
        {"type": "2bit", "threshold": True},
        {"type": "2bit", "threshold": [1]},
        {"type": "2bit", "threshold": 10**400},
        {"type": "2bit", "threshold": "nan"},
        {"type": "2bit", "threshold": "0"},
        {"type": "2bit", "threshold": "-1"},
        {"type": "1bit", "threshold": "inf"},
        {"type": "fp16", "error_feedback": "maybe"},
        {"type": "fp16", "error_feedback": 2},
        {"type": "fp16", "error_feedback": None},
        {"type": "fp16", "error_feedback": []},
    ],
    ids=str,
)
def test_bad_values_are_refused_by_name(params):
    name = "threshold" if "threshold" in params else "error_feedback"
    with pytest.raises(ConfigError, match=name):
        create(params)


@pytest.mark.parametrize("wrong", ["2bit", 2, ["2bit"], TwoBit(), ErrorFeedback], ids=str)
def test_anything_else_is_refused_with_an_example(wrong):
    with pytest.raises(ConfigError, match=r"mapping such as \{'type': '2bit'"):
        create(wrong)
