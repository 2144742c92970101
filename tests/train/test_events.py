import dataclasses

import pytest
import torch

from bireme.train.events import BatchEnd, EpochEnd
from bireme.train.metrics import MetricSet


def test_a_batch_event_reads_its_metrics_late():
    running = MetricSet(["acc"])
    end = BatchEnd(
        module=None, epoch=0, num_epoch=1, batch=0, num_batches=2, num_samples=2, running=running
    )
    running.update(torch.eye(2), torch.tensor([0, 0]), torch.tensor(0.5), 2)
    assert end.loss == 0.5
    assert end.metrics == {"accuracy": 0.5}
    with pytest.raises(dataclasses.FrozenInstanceError):
        end.epoch = 3


def test_an_epoch_event_knows_its_speed():
    end = EpochEnd(
        module=None,
        epoch=0,
        num_epoch=1,
        num_samples=100,
        duration_s=4.0,
        loss=0.1,
        metrics={},
        evaluation={},
        sample_shares=(1.0,),
    )
    assert end.samples_per_s == 25
    assert dataclasses.replace(end, duration_s=0.0).samples_per_s == float("inf")
