import math

import torch

from bireme.train.metrics.base import MeanMetric, UpdateComputeReset


class Largest(MeanMetric):
    name = "largest"

    def measure(self, pred, label):
        return pred.max() * len(label), len(label)


def test_a_mean_is_over_everything_that_was_measured():
    metric = Largest()
    metric.update(torch.tensor([1.0, 1.0, 1.0]), torch.zeros(3))
    metric.update(torch.tensor([5.0]), torch.zeros(1))
    assert metric.compute() == 2.0


def test_nothing_seen_is_nan_and_reset_forgets():
    metric = Largest()
    assert math.isnan(metric.compute())
    metric.update(torch.ones(2), torch.zeros(2))
    metric.reset()
    assert math.isnan(metric.compute())


def test_sums_are_wide_and_leave_the_graph():
    metric = Largest()
    for _ in range(300):
        metric.add(torch.ones((), dtype=torch.bfloat16, requires_grad=True), 1)
    assert metric.compute() == 1.0
    assert not metric._total.requires_grad


def test_metrics_of_others_are_known_by_their_methods():
    assert isinstance(Largest(), UpdateComputeReset)
    assert not isinstance(len, UpdateComputeReset)
