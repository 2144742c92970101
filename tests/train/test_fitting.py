import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from bireme import Module
from bireme.errors import ConfigError
from bireme.train.fitting import Plan, callbacks_of

DATA = [(torch.ones(4, 2), torch.zeros(4, 1)), (torch.ones(2, 2), torch.zeros(2, 1))]


def module_of(net=None, **options):
    return Module(net or nn.Linear(2, 1), nn.functional.mse_loss, **options)


def plan_of(**changes):
    return Plan(
        **{
            "train_data": DATA,
            "eval_data": None,
            "eval_metric": "mse",
            "begin_epoch": 0,
            "num_epoch": 1,
            "batch_callbacks": (),
            "epoch_callbacks": (),
        }
        | changes
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_epoch": -1}, "num_epoch must be an integer >= 0"),
        ({"num_epoch": 2.0}, "num_epoch must be an integer >= 0"),
        ({"begin_epoch": True}, "begin_epoch must be an integer >= 0"),
        ({"begin_epoch": 3}, "num_epoch=1 is before begin_epoch=3"),
        ({"num_epoch": 2, "train_data": iter(DATA)}, "train_data is a one-shot"),
        ({"num_epoch": 2, "eval_data": iter(DATA)}, "eval_data is a one-shot"),
        ({"train_data": torch.ones(3)}, "one Tensor"),
        ({"eval_metric": "nothing"}, "unknown metric"),
    ],
)
def test_a_wrong_plan_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        plan_of(**changes)


def test_callbacks_are_one_or_many():
    assert callbacks_of("x", None) == ()
    assert callbacks_of("x", print) == (print,)
    assert callbacks_of("x", [print, len]) == (print, len)
    for wrong in ("text", [3], Module):
        with pytest.raises(ConfigError, match="x takes functions"):
            callbacks_of("x", wrong)


def test_events_tell_the_story_in_order():
    story = []
    module_of(context=["cpu(0)", "cpu(1)"], work_load_list=[3, 1]).fit(
        DATA,
        eval_data=DATA[:1],
        eval_metric=["mse", "loss"],
        num_epoch=4,
        begin_epoch=2,
        batch_end_callback=lambda end: story.append(("batch", end.epoch, end.batch, end)),
        epoch_end_callback=[lambda end: story.append(("epoch", end.epoch, None, end))],
    )
    assert [entry[:3] for entry in story] == [
        ("batch", 2, 0),
        ("batch", 2, 1),
        ("epoch", 2, None),
        ("batch", 3, 0),
        ("batch", 3, 1),
        ("epoch", 3, None),
    ]
    batch, epoch = story[1][3], story[2][3]
    assert (batch.num_batches, batch.num_samples, batch.num_epoch) == (2, 2, 4)
    assert epoch.num_samples == 6
    # 4 samples are split 3 to 1, and 2 samples 1 to 1, for each context keeps one.
    assert epoch.sample_shares == pytest.approx((4 / 6, 2 / 6))
    assert epoch.metrics.keys() == epoch.evaluation.keys() == {"loss", "mse"}
    assert epoch.loss == pytest.approx(epoch.metrics["mse"])
    assert epoch.duration_s > 0


def test_an_epoch_callback_that_returns_true_ends_the_training():
    told = []
    module_of().fit(
        DATA,
        num_epoch=9,
        eval_metric=None,
        epoch_end_callback=[lambda end: end.epoch == 1, lambda end: told.append(end.epoch) or 5],
    )
    assert told == [0, 1]


class Closing:
    def __init__(self, fail=False):
        self.closed = 0
        self.fail = fail

    def __call__(self, end):
        if self.fail:
            raise KeyError("in a callback")

    def close(self):
        self.closed += 1


def test_callbacks_are_closed_once_also_after_an_error():
    fine, failing = Closing(), Closing(fail=True)
    module_of().fit(
        DATA, num_epoch=1, eval_metric=None, batch_end_callback=fine, epoch_end_callback=fine
    )
    assert fine.closed == 1
    with pytest.raises(KeyError, match="in a callback"):
        module_of().fit(DATA, num_epoch=1, eval_metric=None, epoch_end_callback=[failing, fine])
    assert (failing.closed, fine.closed) == (1, 2)


def test_nothing_to_do_is_done_at_once():
    module = module_of()
    before = module.net.weight.detach().clone()
    module.fit(DATA, num_epoch=3, begin_epoch=3, eval_metric="mse")
    assert torch.equal(module.net.weight, before)


def test_schedulers_step_once_per_epoch():
    rates = []
    module = module_of()
    module.fit(
        DATA,
        num_epoch=4,
        eval_metric=None,
        optimizer_params={"lr": 1e-3},
        lr_scheduler=lambda trainer: lr_scheduler.StepLR(trainer, 2, gamma=0.1),
        batch_end_callback=lambda end: rates.append(end.module.trainer.learning_rate),
    )
    assert rates == pytest.approx([1e-3] * 4 + [1e-4] * 4)


def test_a_scheduler_may_be_an_object_and_plateaus_see_the_evaluation():
    seen = []

    class Watching(lr_scheduler.ReduceLROnPlateau):
        def step(self, metrics, epoch=None):
            seen.append(metrics)
            super().step(metrics)

    module = module_of()
    module.init_optimizer(optimizer_params={"lr": 0.1})
    scores = []
    module.fit(
        DATA,
        DATA,
        "mse",
        num_epoch=2,
        lr_scheduler=Watching(module.trainer),
        epoch_end_callback=lambda end: scores.append(end.evaluation["mse"]),
    )
    assert seen == scores


def test_an_epoch_without_batches_is_an_error():
    with pytest.raises(ConfigError, match=r"train_data has no batches \(epoch 0\)"):
        module_of().fit([], num_epoch=1)
    used = iter(DATA)
    module_of().fit(used, num_epoch=1, eval_metric=None)
    with pytest.raises(ConfigError, match="train_data has no batches"):
        module_of().fit(used, num_epoch=1)
