"""Makes a metric of whatever stands for one."""

from typing import Any

from bireme.errors import ConfigError
from bireme.train.metrics.adapted import CustomMetric, ForeignMetric
from bireme.train.metrics.base import Metric, MetricLike, UpdateComputeReset
from bireme.train.metrics.named import NAMED

__all__ = ("create",)


def create(metric: MetricLike, **parameters: Any) -> Metric:
    """Return the metric that a name, object or function stands for.

    Args:
        metric: See :data:`MetricLike`; not a list.
        parameters: For a name that takes some: ``create("top_k_accuracy", k=3)``.

    Raises:
        ConfigError: The name or a parameter is unknown, or ``metric`` is no metric.

    Example:
        >>> create("top_k_accuracy", k=3).name
        'top_3_accuracy'
    """
    if isinstance(metric, str):
        if metric not in NAMED:
            names = ", ".join([*NAMED, "loss"])
            raise ConfigError(f"unknown metric {metric!r}; the names are: {names}")
        try:
            return NAMED[metric](**parameters)
        except TypeError as error:
            raise ConfigError(f"metric {metric!r} does not take {parameters}: {error}") from error
    if parameters:
        raise ConfigError(f"parameters {sorted(parameters)} go with a metric's name only")
    if isinstance(metric, type):
        raise ConfigError(f"{metric.__name__} is a class; pass an object: {metric.__name__}()")
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, UpdateComputeReset):
        return ForeignMetric(metric)
    if callable(metric):
        return CustomMetric(metric)
    raise ConfigError(f"expected a metric's name, object or function, got {metric!r}")
