import math

import pytest
import torch
import torchmetrics
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from bireme.errors import ConfigError
from bireme.train import metrics
from bireme.train.metrics import MetricSet, create

PRED = torch.tensor([[0.1, 0.7, 0.2], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.4, 0.5, 0.1]])
LABEL = torch.tensor([1, 1, 2, 0])


def value_of(metric, pred=PRED, label=LABEL, **parameters):
    made = create(metric, **parameters)
    made.reset()
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
        metric = create(name)
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


def test_nothing_seen_is_nan_and_reset_forgets():
    metric = create("acc")
    assert math.isnan(metric.compute())
    metric.update(PRED, LABEL)
    metric.reset()
    assert math.isnan(metric.compute())


def test_sums_of_half_types_are_wide():
    pred = torch.zeros(5000, 2, dtype=torch.bfloat16)
    label = torch.zeros(5000, dtype=torch.long)
    assert value_of("ce", pred, label) == pytest.approx(math.log(2), rel=1e-5)


def test_functions_are_averaged_by_samples():
    def largest(pred, label):
        return pred.max()

    metric = create(largest)
    metric.update(torch.tensor([1.0, 1.0, 1.0]), torch.zeros(3))
    metric.update(torch.tensor([5.0]), torch.zeros(1))
    assert metric.compute() == 2.0
    assert metric.name == "largest"
    assert value_of(lambda pred, label: 3) == 3


def test_a_collection_of_torchmetrics_counts_as_its_members():
    accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
    recall = torchmetrics.Recall(task="multiclass", num_classes=3)
    found = MetricSet(torchmetrics.MetricCollection([accuracy, recall]))
    found.update(torch.eye(3), torch.tensor([0, 1, 1]), None, 3)
    assert found.values() == pytest.approx({"multiclassaccuracy": 2 / 3, "multiclassrecall": 2 / 3})


def test_torchmetrics_objects_work():
    metric = torchmetrics.Accuracy(task="multiclass", num_classes=3)
    found = MetricSet([metric, torchmetrics.MeanSquaredError(num_outputs=1)])
    found.reset()
    with pytest.raises(RuntimeError, match="same shape"):
        found.update(PRED, LABEL, None, 4)
    only = MetricSet(torchmetrics.Accuracy(task="multiclass", num_classes=3))
    only.reset()
    only.update(PRED, LABEL, None, 4)
    assert only.values() == {"multiclassaccuracy": 0.5}


def test_a_foreign_metric_of_many_numbers_is_refused():
    metric = create(torchmetrics.ConfusionMatrix(task="multiclass", num_classes=3))
    metric.update(PRED, LABEL)
    with pytest.raises(ConfigError, match="not one number"):
        metric.compute()


def test_sets_are_flattened_and_keep_the_loss_apart():
    found = MetricSet(["acc", ["mse", "loss"]])
    assert found.wants_loss
    assert found.wants_predictions
    assert not MetricSet(None).wants_predictions
    assert not MetricSet("loss").wants_predictions
    own = metrics.Accuracy()
    assert create(own) is own
    only = MetricSet("loss")
    only.update(None, None, torch.tensor(1.0), 3)
    only.update(None, None, torch.tensor(2.0), 1)
    assert only.loss == 1.25
    assert only.values() == {"loss": 1.25}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("accurracy", "unknown metric 'accurracy'; the names are: acc, accuracy, .*, loss"),
        (metrics.Accuracy, r"is a class; pass an object: Accuracy\(\)"),
        (3, "name, object or function, got 3"),
        (["acc", "accuracy"], "two metrics are called 'accuracy'"),
        ([lambda pred, label: 0, lambda pred, label: 1], "two metrics are called '<lambda>'"),
    ],
)
def test_what_is_no_metric_is_refused(metric, message):
    with pytest.raises(ConfigError, match=message):
        MetricSet(metric)


def test_parameters_are_checked():
    with pytest.raises(ConfigError, match="k must be an integer >= 1, got 0"):
        create("top_k_accuracy", k=0)
    with pytest.raises(ConfigError, match="does not take"):
        create("acc", k=1)
    with pytest.raises(ConfigError, match="name only"):
        create(metrics.Accuracy(), k=1)
