import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from bireme.errors import ConfigError
from bireme.train.metrics.named import NAMED

PRED = torch.tensor([[0.1, 0.7, 0.2], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.4, 0.5, 0.1]])
LABEL = torch.tensor([1, 1, 2, 0])


def value_of(name, pred=PRED, label=LABEL, **parameters):
    made = NAMED[name](**parameters)
    made.update(pred, label)
    return made.compute()


def test_each_name_computes_what_it_says():
    assert value_of("acc") == value_of("accuracy") == 0.5
    assert value_of("top_k_accuracy", k=2) == 1.0
    assert value_of("top_k_accuracy", k=1) == 0.5
    assert value_of("ce") == pytest.approx(functional.cross_entropy(PRED, LABEL).item())
    assert value_of("cross-entropy") == value_of("ce")
    pred, label = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [1.0]])
    assert value_of("mse", pred, label) == 2.5
    assert value_of("mae", pred, label) == 1.5


def test_accuracy_takes_classes_and_dense_scores():
    assert value_of("acc", torch.tensor([1, 0]), torch.tensor([1, 1])) == 0.5
    dense = torch.zeros(2, 3, 4, 4)
    dense[:, 1] = 1
    assert value_of("acc", dense, torch.ones(2, 4, 4, dtype=torch.long)) == 1.0


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_batches_of_any_sizes_give_the_value_of_the_whole(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    pred = torch.rand(sum(sizes), 3, generator=generator)
    label = torch.randint(3, (sum(sizes),), generator=generator)
    for name in ("acc", "ce"):
        metric = NAMED[name]()
        for part, target in zip(pred.split(sizes), label.split(sizes), strict=True):
            metric.update(part, target)
        assert metric.compute() == pytest.approx(value_of(name, pred, label), rel=1e-5)


@pytest.mark.parametrize("name", ["mse", "mae"])
def test_a_column_is_not_spread_over_the_batch(name):
    # (n, 1) minus (n,) would be (n, n).
    assert value_of(name, torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0])) == 0
    with pytest.raises(ConfigError, match="differ in shape"):
        value_of(name, torch.zeros(4), torch.zeros(3))


@pytest.mark.parametrize(
    ("name", "pred", "label"),
    [
        ("acc", torch.zeros(4, 1), LABEL),
        ("acc", torch.zeros(4), LABEL),
        ("acc", torch.zeros(5, 3), LABEL),
        ("top_k_accuracy", PRED, LABEL),
        ("ce", PRED, LABEL.float()),
        ("ce", PRED[:, 0], LABEL),
    ],
)
def test_shapes_without_meaning_are_refused(name, pred, label):
    with pytest.raises(ConfigError, match="of shape"):
        value_of(name, pred, label)


def test_sums_of_half_types_are_wide():
    pred = torch.zeros(5000, 2, dtype=torch.bfloat16)
    label = torch.zeros(5000, dtype=torch.long)
    assert value_of("ce", pred, label) == pytest.approx(math.log(2), rel=1e-5)


def test_k_is_a_number_of_scores():
    with pytest.raises(ConfigError, match="k must be an integer >= 1, got 0"):
        NAMED["top_k_accuracy"](k=0)
