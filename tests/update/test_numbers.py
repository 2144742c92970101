"""What a hyper-parameter may be."""

import math

import numpy as np
import pytest
import torch

from bireme.errors import ConfigError
from bireme.update.numbers import factors, is_plain, number, to_plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5),
        (3, 3),
        (True, True),
        (None, None),
        ("name", "name"),
        (torch.tensor(0.5), 0.5),
        (torch.tensor([0.25]), 0.25),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(7), 7),
        ([0.9, torch.tensor(0.5)], (0.9, 0.5)),
        ((None, 1), (None, 1)),
    ],
)
def test_plain_values(value, expected):
    found = to_plain("x", value)
    assert found == expected
    assert type(found) is type(expected)
    assert is_plain(value)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        np.float32("nan"),
        torch.tensor(math.nan),
        torch.zeros(2),
        torch.zeros((), device="meta"),
        torch.tensor(1j),
        1 << 63,
        -(1 << 63),
        10**400,
        1j,
        b"x",
        "x" * 65,
        {"a": 1},
        [[0.1]],
        ["a"],
        [0.1] * 65,
        print,
    ],
)
def test_what_is_not_plain(value):
    assert not is_plain(value)
    with pytest.raises(ConfigError, match="betas"):
        to_plain("betas", value)


def test_numbers_and_factors():
    assert number("x", np.float32(2)) == 2.0
    assert factors("lr_mult", {"a": 1}) == {"a": 1.0}
    for value in (True, "1", None, [1.0]):
        with pytest.raises(ConfigError, match="x must be a"):
            number("x", value)
    for given in ({"a": -1.0}, {"a": math.nan}, [1.0], None):
        with pytest.raises(ConfigError, match="lr_mult"):
            factors("lr_mult", given)
