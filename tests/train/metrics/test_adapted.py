import pytest
import torch
import torchmetrics

from bireme.errors import ConfigError
from bireme.train.metrics.adapted import CustomMetric, ForeignMetric

PRED = torch.eye(3)
LABEL = torch.tensor([0, 1, 1])


def test_functions_are_averaged_by_samples():
    def largest(pred, label):
        return pred.max()

    metric = CustomMetric(largest)
    metric.update(torch.tensor([1.0, 1.0, 1.0]), torch.zeros(3))
    metric.update(torch.tensor([5.0]), torch.zeros(1))
    assert metric.compute() == 2.0
    assert metric.name == "largest"
    assert CustomMetric(largest, "most").name == "most"


def test_a_metric_of_torchmetrics_computes_what_it_does():
    metric = ForeignMetric(torchmetrics.Accuracy(task="multiclass", num_classes=3))
    assert metric.name == "multiclassaccuracy"
    metric.update(PRED, LABEL)
    assert metric.compute() == pytest.approx(2 / 3)
    metric.reset()
    metric.update(PRED, torch.tensor([0, 1, 2]))
    assert metric.compute() == 1.0


def test_a_foreign_metric_of_many_numbers_is_refused():
    metric = ForeignMetric(torchmetrics.ConfusionMatrix(task="multiclass", num_classes=3))
    metric.update(PRED, LABEL)
    with pytest.raises(ConfigError, match="not one number"):
        metric.compute()
