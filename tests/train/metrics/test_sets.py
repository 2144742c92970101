import pytest
import torch
import torchmetrics

from bireme.errors import ConfigError
from bireme.train.metrics.sets import MetricSet

PRED = torch.tensor([[0.1, 0.7, 0.2], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.4, 0.5, 0.1]])
LABEL = torch.tensor([1, 1, 2, 0])


def test_sets_are_flattened_and_keep_the_loss_apart():
    found = MetricSet(["acc", ["mse", "loss"]])
    assert found.wants_loss
    assert found.wants_predictions
    assert not MetricSet(None).wants_predictions
    assert not MetricSet("loss").wants_predictions
    only = MetricSet("loss")
    only.update(None, None, torch.tensor(1.0), 3)
    only.update(None, None, torch.tensor(2.0), 1)
    assert only.loss == 1.25
    assert only.values() == {"loss": 1.25}


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


def test_a_run_begins_anew():
    found = MetricSet(["acc", "loss"])
    found.update(PRED, LABEL, torch.tensor(1.0), 4)
    found.reset()
    found.update(PRED[:1], LABEL[:1], torch.tensor(2.0), 1)
    assert found.values() == {"loss": 2.0, "accuracy": 1.0}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("accurracy", "unknown metric"),
        (["acc", "accuracy"], "two metrics are called 'accuracy'"),
        ([lambda pred, label: 0, lambda pred, label: 1], "two metrics are called '<lambda>'"),
    ],
)
def test_what_is_no_set_is_refused(metric, message):
    with pytest.raises(ConfigError, match=message):
        MetricSet(metric)
