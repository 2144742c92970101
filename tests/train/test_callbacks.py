import itertools
import math

import pytest
import torch

from bireme.errors import ConfigError
from bireme.train.callbacks import (
    BatchEnd,
    Checkpoint,
    EarlyStopping,
    EpochEnd,
    Speedometer,
    do_checkpoint,
)
from bireme.train.metrics import MetricSet


class Saving:
    def __init__(self):
        self.saved = []

    def save_checkpoint(self, prefix, epoch):
        self.saved.append((prefix, epoch))


def batch_end(batch, epoch=0, num_samples=8):
    running = MetricSet("acc")
    running.update(torch.eye(2), torch.tensor([0, 0]), torch.tensor(0.25), 2)
    return BatchEnd(
        module=None,
        epoch=epoch,
        num_epoch=2,
        batch=batch,
        num_batches=None,
        num_samples=num_samples,
        running=running,
    )


def epoch_end(epoch=0, module=None, loss=1.0, metrics=None, evaluation=None):
    return EpochEnd(
        module=module,
        epoch=epoch,
        num_epoch=9,
        num_samples=10,
        duration_s=1.0,
        loss=loss,
        metrics=metrics or {},
        evaluation=evaluation or {},
        sample_shares=(1.0,),
    )


def test_speedometer_writes_every_so_many_batches():
    lines = []
    clock = itertools.count(start=0, step=1).__next__
    meter = Speedometer(8, frequent=2, write=lines.append, clock=lambda: float(clock()))
    for epoch in range(2):
        for batch in range(5):
            meter(batch_end(batch, epoch))
    assert lines == [
        f"Epoch[{epoch}] Batch [{start}-{start + 2}]\tSpeed: 16.00 samples/sec\t"
        "loss=0.250000\taccuracy=0.500000"
        for epoch in range(2)
        for start in (0, 2)
    ]


def test_speedometer_prints_by_default(capsys):
    meter = Speedometer(8, frequent=1, clock=lambda: 0.0)
    meter(batch_end(0))
    meter(batch_end(1))
    assert "\tSpeed: inf samples/sec\tloss=0.250000\t" in capsys.readouterr().out


def test_checkpoints_are_written_every_period():
    module = Saving()
    for callback in (Checkpoint("out/net", 2), do_checkpoint("out/net", 2)):
        module.saved.clear()
        for epoch in range(5):
            callback(epoch_end(epoch, module))
        assert module.saved == [("out/net", 2), ("out/net", 4)]


def run(callback, values, name="accuracy"):
    return [
        callback(epoch_end(epoch, evaluation={name: value})) for epoch, value in enumerate(values)
    ]


def test_early_stopping_waits_for_its_patience():
    assert run(EarlyStopping(patience=1), [0.5, 0.6, 0.6, 0.6]) == [False, False, False, True]
    assert run(EarlyStopping(patience=0), [0.5, 0.4]) == [False, True]
    assert run(EarlyStopping("mse", patience=0), [2, 1, 1.5], "mse") == [False, False, True]
    stopping = EarlyStopping("mse", 0, "max", min_delta=0.5)
    assert run(stopping, [1, 1.4], "mse") == [False, True]
    assert (stopping.best, stopping.best_epoch) == (1, 0)


def test_early_stopping_gives_up_on_nan():
    assert run(EarlyStopping(patience=1), [math.nan, math.nan]) == [False, True]


def test_early_stopping_watches_what_there_is():
    assert not EarlyStopping("acc")(epoch_end(metrics={"accuracy": 0.5}))
    assert not EarlyStopping("loss")(epoch_end(loss=0.5))
    with pytest.raises(ConfigError, match="watches 'f1', but this run has loss, mse"):
        EarlyStopping("f1")(epoch_end(metrics={"mse": 1.0}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Speedometer(0),
        lambda: Speedometer(8, 0),
        lambda: Speedometer(8, 2.5),
        lambda: Checkpoint("x", 0),
        lambda: EarlyStopping(patience=-1),
        lambda: EarlyStopping(mode="up"),
        lambda: EarlyStopping(min_delta=math.nan),
    ],
)
def test_arguments_are_checked(make):
    with pytest.raises(ConfigError):
        make()
