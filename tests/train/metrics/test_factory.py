import pytest
import torch
import torchmetrics

from bireme.errors import ConfigError
from bireme.train.metrics.adapted import CustomMetric, ForeignMetric
from bireme.train.metrics.factory import create
from bireme.train.metrics.named import Accuracy, TopKAccuracy


def test_names_objects_and_functions_stand_for_metrics():
    own = Accuracy()
    assert create(own) is own
    assert isinstance(create("acc"), Accuracy)
    assert isinstance(create("top_k_accuracy", k=2), TopKAccuracy)
    assert isinstance(create(torchmetrics.MeanSquaredError()), ForeignMetric)
    function = create(lambda pred, label: 3)
    assert isinstance(function, CustomMetric)
    function.update(torch.ones(2), torch.ones(2))
    assert function.compute() == 3


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("accurracy", "unknown metric 'accurracy'; the names are: acc, accuracy, .*, loss"),
        (Accuracy, r"is a class; pass an object: Accuracy\(\)"),
        (3, "name, object or function, got 3"),
    ],
)
def test_what_is_no_metric_is_refused(metric, message):
    with pytest.raises(ConfigError, match=message):
        create(metric)


def test_parameters_are_checked():
    with pytest.raises(ConfigError, match="k must be an integer >= 1, got 0"):
        create("top_k_accuracy", k=0)
    with pytest.raises(ConfigError, match="does not take"):
        create("acc", k=1)
    with pytest.raises(ConfigError, match="name only"):
        create(Accuracy(), k=1)
