"""The loop over epochs and batches. :meth:`bireme.Module.fit` calls it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.optim import lr_scheduler as schedulers

from bireme.errors import ConfigError
from bireme.train import batches, events
from bireme.train.metrics import MetricLike, MetricSet

if TYPE_CHECKING:
    from bireme.train.module import Module

__all__ = ("Plan", "SchedulerLike", "callbacks_of", "run")

SchedulerLike: TypeAlias = (
    schedulers.LRScheduler | Callable[[torch.optim.Optimizer], schedulers.LRScheduler]
)
"""A scheduler, or a function that makes one of the trainer's optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What one call of ``fit`` is to do; see there.

    Raises:
        ConfigError: An epoch is out of range, data is no iterable of batches or cannot be gone
            through often enough, or a metric is unknown.
    """

    train_data: Any
    eval_data: Any
    eval_metric: MetricLike | None
    begin_epoch: int
    num_epoch: int
    batch_callbacks: Sequence[events.BatchCallback]
    epoch_callbacks: Sequence[events.EpochCallback]

    def __post_init__(self) -> None:
        for name in ("begin_epoch", "num_epoch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"{name} must be an integer >= 0, got {value!r}")
        if self.num_epoch < self.begin_epoch:
            raise ConfigError(
                f"num_epoch={self.num_epoch} is before begin_epoch={self.begin_epoch}; it is the "
                "epoch to stop before, counted from 0, not how many to add"
            )
        num_passes = self.num_epoch - self.begin_epoch
        batches.check_repeatable("train_data", self.train_data, num_passes)
        if self.eval_data is not None:
            batches.check_repeatable("eval_data", self.eval_data, num_passes)
        MetricSet(self.eval_metric)


def callbacks_of(name: str, given: Any) -> tuple[Callable[[Any], Any], ...]:
    """Return one callback or a list of them as a tuple.

    Raises:
        ConfigError: One of them cannot be called.
    """
    found = tuple(given) if isinstance(given, list | tuple) else (() if given is None else (given,))
    for callback in found:
        if not callable(callback) or isinstance(callback, type):
            raise ConfigError(f"{name} takes functions and callback objects, got {callback!r}")
    return found


def run(module: "Module", plan: Plan, scheduler: schedulers.LRScheduler | None) -> None:
    """Train ``module`` as ``plan`` says, and close the callbacks at the end.

    Raises:
        Exception: What data, net, loss, metrics or callbacks raised.
    """
    callbacks = {id(each): each for each in (*plan.batch_callbacks, *plan.epoch_callbacks)}
    try:
        for epoch in range(plan.begin_epoch, plan.num_epoch):
            end = _run_epoch(module, plan, epoch, scheduler)
            # A list, not any(): every callback is told.
            if True in [callback(end) is True for callback in plan.epoch_callbacks]:
                break
    finally:
        for callback in callbacks.values():
            close = getattr(callback, "close", None)
            if callable(close):
                close()


def _run_epoch(
    module: "Module", plan: Plan, epoch: int, scheduler: schedulers.LRScheduler | None
) -> events.EpochEnd:
    running = MetricSet(plan.eval_metric)
    running.reset()
    start_s = time.perf_counter()
    sizes = _train_epoch(module, plan, epoch, running)
    loss, metrics = running.loss, running.values()
    duration_s = time.perf_counter() - start_s
    module.sync_buffers()
    evaluation = {}
    if plan.eval_data is not None:
        evaluation = _evaluate(module, plan)
    _step(scheduler, next(iter(evaluation.values()), loss))
    return events.EpochEnd(
        module=module,
        epoch=epoch,
        num_epoch=plan.num_epoch,
        num_samples=sum(sizes),
        duration_s=duration_s,
        loss=loss,
        metrics=metrics,
        evaluation=evaluation,
        sample_shares=tuple(size / sum(sizes) for size in sizes),
    )


def _train_epoch(module: "Module", plan: Plan, epoch: int, running: MetricSet) -> list[int]:
    """Go through the training data once; return the samples that each context computed."""
    totals = [0] * len(module.context)
    num_batches = batches.length(plan.train_data)
    for index, batch in enumerate(batches.epoch_batches("train_data", plan.train_data, epoch)):
        step = module.forward_backward(batch, want_pred=running.wants_predictions)
        module.update()
        running.update(step.pred, step.label, step.loss, step.num_samples)
        totals = [total + size for total, size in zip(totals, step.sizes, strict=True)]
        end = events.BatchEnd(
            module=module,
            epoch=epoch,
            num_epoch=plan.num_epoch,
            batch=index,
            num_batches=num_batches,
            num_samples=step.num_samples,
            running=running,
        )
        for callback in plan.batch_callbacks:
            callback(end)
    return totals


def _evaluate(module: "Module", plan: Plan) -> dict[str, float]:
    metric = "loss" if plan.eval_metric is None else plan.eval_metric
    return module.score(plan.eval_data, metric)


def _step(scheduler: schedulers.LRScheduler | None, value: float) -> None:
    if isinstance(scheduler, schedulers.ReduceLROnPlateau):
        scheduler.step(value)
    elif scheduler is not None:
        scheduler.step()
