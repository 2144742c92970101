"""Metrics: how good the predictions are, added up over batches.

Called by :meth:`bireme.Module.fit` and ``score``, which take a name, an object or function, or a
list of these. Each metric sees whole batches, however they were split over contexts.
"""

from bireme.train.metrics.adapted import CustomMetric as CustomMetric
from bireme.train.metrics.base import MeanMetric as MeanMetric
from bireme.train.metrics.base import Metric as Metric
from bireme.train.metrics.base import MetricLike as MetricLike
from bireme.train.metrics.base import UpdateComputeReset as UpdateComputeReset
from bireme.train.metrics.factory import create as create
from bireme.train.metrics.named import Accuracy as Accuracy
from bireme.train.metrics.named import CrossEntropy as CrossEntropy
from bireme.train.metrics.named import MeanAbsoluteError as MeanAbsoluteError
from bireme.train.metrics.named import MeanSquaredError as MeanSquaredError
from bireme.train.metrics.named import TopKAccuracy as TopKAccuracy
from bireme.train.metrics.sets import MetricSet as MetricSet

__all__ = (
    "Accuracy",
    "CrossEntropy",
    "CustomMetric",
    "MeanAbsoluteError",
    "MeanMetric",
    "MeanSquaredError",
    "Metric",
    "MetricLike",
    "MetricSet",
    "TopKAccuracy",
    "UpdateComputeReset",
    "create",
)
