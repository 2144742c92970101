import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.train.shares import check_counts, shares


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8).filter(any))
def test_shares_are_proportional_and_sum_to_one(counts):
    weights = shares(check_counts(counts, len(counts)), sum(counts))
    assert math.isclose(sum(weights), 1.0)
    for count, weight in zip(counts, weights, strict=True):
        assert weight == count / sum(counts)


def test_numpy_numbers_and_fractions_are_counts():
    assert check_counts([np.int64(3), np.float32(0.5)], 2) == [3.0, 0.5]
    assert check_counts((1, 2), 2) == [1.0, 2.0]
    assert check_counts(np.array([1, 2]), 2) == [1.0, 2.0]
    assert check_counts(torch.tensor([1.0, 2.0]), 2) == [1.0, 2.0]
    assert check_counts([torch.tensor(1), 2], 2) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("num_samples", "num_replicas", "message"),
    [
        ([1], 2, "1 counts for 2 replicas"),
        (8, 2, "1 counts for 2 replicas"),
        ([1, -1], 2, "finite and >= 0, got -1"),
        ([1, float("nan")], 2, "got nan"),
        ([1, float("inf")], 2, "got inf"),
        (-3, 1, "got -3"),
        (True, 1, "got True"),
        ([True, 1], 2, "got True"),
        (["1", 2], 2, "got '1'"),
        ("12", 2, "got str"),
        ({1: 2}, 1, "got dict"),
        ([10**400, 1], 2, "got inf"),
        ([[1], 1], 2, r"got \[1\]"),
        (np.array([True, False]), 2, "got True"),
    ],
)
def test_bad_counts_are_refused(num_samples, num_replicas, message):
    with pytest.raises(ConfigError, match=message):
        check_counts(num_samples, num_replicas)


def test_no_samples_anywhere_is_refused():
    with pytest.raises(ConfigError, match="empty batch"):
        shares([0.0, 0.0], 0.0)
